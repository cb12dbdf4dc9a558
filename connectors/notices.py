"""What a source has warned of, for reports."""

from __future__ import annotations

import logging

logger = logging.getLogger("connectors")


class Notices(list[str]):
    """Warnings that were logged, once each, in order."""

    def say(self, text: str) -> None:
        """Log a warning and keep it, unless it was said before.

        Parameters
        ----------
        text
            The warning.
        """
        if text not in self:
            self.append(text)
            logger.warning("%s", text)
