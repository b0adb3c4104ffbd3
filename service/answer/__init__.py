"""The walk of one query; the only package that knows all the packages below it."""
