"""File formats, one small module each; every writer goes through :mod:`qnumba.io.files`."""
