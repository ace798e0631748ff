"""The beginnings of an app's rounds, as far as its messages tell."""

from __future__ import annotations


class RoundNumbers:
    """Flower counts no rounds: its strategies write a number into their messages, others put it into `group_id`.

    A round begins with the first message whose number is another one. An app that writes none begins a round each time
    that it trains and waits for the replies.
    """

    def __init__(self) -> None:
        self._number = ""
        self._trained = False

    def begins(self, number: str, trains: bool) -> bool:
        """True if a batch of messages begins another round than the one that goes on, which is the first at first.

        number: what the app calls its round; "": nothing. trains: it is a batch of trainings that is waited for.

        >>> r = RoundNumbers()
        >>> [r.begins("1", True), r.begins("1", False), r.begins("2", True), r.begins("1", True)]
        [False, False, True, True]
        >>> r = RoundNumbers()
        >>> [r.begins("", False), r.begins("", True), r.begins("", False), r.begins("", True)]
        [False, False, False, True]
        """
        if number:
            begins, self._number = bool(self._number) and number != self._number, number
            return begins
        if not trains or self._number:
            return False
        begins, self._trained = self._trained, True
        return begins
