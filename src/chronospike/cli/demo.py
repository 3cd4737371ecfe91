def demo():
    pass
