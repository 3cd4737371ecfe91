"""The methods, one file each; `registry` names them."""
