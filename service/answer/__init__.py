"""The walk of one query; the only package that knows all the packages below it."""

from service.answer.answerer import Answerer, Means, Submitted

__all__ = ["Answerer", "Means", "Submitted"]
