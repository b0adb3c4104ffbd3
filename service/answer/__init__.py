"""The walk of one query; the only package that knows all the packages below it."""

from service.answer.answerer import Answerer
from service.answer.errand import Submitted
from service.answer.walker import Means

__all__ = ["Answerer", "Means", "Submitted"]
