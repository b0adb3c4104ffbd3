"""The walk of one query; the only package that knows all the packages below it."""

from service.walk.answerer import Answerer
from service.walk.charged import WalkTools

__all__ = ["Answerer", "WalkTools"]
