"""The operator's pages for runs and what belongs to them."""

from fanout.admin import news, runs, targets

__all__ = ["news", "runs", "targets"]
