def demo(): pass
