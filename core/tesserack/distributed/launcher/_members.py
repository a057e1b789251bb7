"""Which machines take part in a job, as all of its launchers see it: what lies in their store, and how it changes."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

__all__ = ["Members"]


@dataclass
class Members:
    """A machine is named by its launcher's name. Attempts are counted by rounds: one is open until it is full, or has
    enough machines and waited long enough for more; it is over once a machine fails, leaves or comes to it."""

    round: int = 0
    restarts: int = 0  #: after failures
    present: dict[str, int] = field(default_factory=dict)  #: who lives, by the order of coming, and its ranks
    members: list[str] = field(default_factory=list)  #: of the round
    closed: bool = False  #: whether nobody is added to it
    done: list[str] = field(default_factory=list)  #: whose ranks have ended well
    why: str = ""  #: the round before is over
    ended: str = ""  #: no machine need go on, and why

    @classmethod
    def read(cls, text: bytes) -> Members:
        """What a store has; nobody where it has nothing."""
        return cls(**json.loads(text)) if text else cls()

    def text(self) -> str:
        """As a store keeps it."""
        return json.dumps(dataclasses.asdict(self))

    def come(self, name: str, ranks: int, most: int) -> bool:
        """Take part in the round, or in a new one where there is room beside those at work. Whether there was."""
        self.present.setdefault(name, ranks)
        if name in self.members:
            return True
        first = list(self.present)[:most]  # others wait until one of these is gone
        if self.done or self.ended or len(self.members) >= most or name not in first:
            return False
        if self.closed:
            self.over(f"{name} has come")
        self.members.append(name)
        return True

    def close(self, number: int) -> None:
        """Nobody more in a round: first numbers go to who came first, since a new one as rank 0 would have no state."""
        if number != self.round or self.closed:
            return
        order = list(self.present)
        self.members.sort(key=order.index)
        self.closed = True

    def over(self, why: str) -> None:
        """The round is; those that are there meet in the next."""
        self.round, self.members, self.closed, self.why = self.round + 1, [], False, why

    def leave(self, name: str, why: str, gone: bool = True) -> None:
        """A machine goes: whoever works with it begins again without it, but waits a little until it is gone."""
        if gone:
            self.present.pop(name, None)
        if name in self.members and name not in self.done:
            if not self.closed:
                self.members.remove(name)
            elif self.done:  # who has ended well does not come again
                self.ended = self.ended or why
            else:
                self.over(why)

    def fail(self, name: str, number: int, why: str, most: int) -> None:
        """Ranks of a machine have failed in a round: all begin again, if they may."""
        if number != self.round or self.ended:
            return  # somebody was first, and they have failed with it
        if self.done or self.restarts >= most:
            self.ended = f"{name} has given up: {why}"
        else:
            self.restarts += 1
            self.over(f"ranks of {name} failed")

    def all_done(self) -> bool:
        """Whether every machine of the round that is still there has ended well, one at least."""
        return bool(self.done) and all(name in self.done or name not in self.present for name in self.members)
