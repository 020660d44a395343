"""Delayed operations: completed once, by event, deadline or hand; and what their code may do meanwhile."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from logcore import UsageError, UsageTypeError
from logcore.replication import DelayedOperation, Purgatory


class Wait(DelayedOperation):
    """Completes once `ready` is set. Notes what happened to it; runs the code it is given, in can_complete or after."""

    def __init__(
        self,
        *,
        ready: bool = False,
        when_asked: Callable[[], object] = lambda: None,
        when_done: Callable[[], object] = lambda: None,
    ) -> None:
        self.ready = ready
        self.when_asked = when_asked
        self.when_done = when_done
        self.asked = 0
        self.is_being_asked = False
        self.seen: list[tuple[str, int]] = []

    def can_complete(self, now_ms: int) -> bool:
        assert not self.is_being_asked
        assert not self.is_completed
        self.asked += 1
        self.is_being_asked = True
        try:
            self.when_asked()
        finally:
            self.is_being_asked = False
        return self.ready

    def on_complete(self, now_ms: int) -> None:
        assert self.is_completed
        self.seen.append(("complete", now_ms))
        self.when_done()

    def on_expiration(self, now_ms: int) -> None:
        self.seen.append(("expire", now_ms))


@pytest.fixture
def purgatory():
    made: Purgatory[Wait] = Purgatory(0)
    yield made
    made.check_invariants()


def park(purgatory: Purgatory[Wait], operation: Wait, *keys: str, deadline_ms: int = 1000, now_ms: int = 0) -> Wait:
    assert not purgatory.try_complete_else_watch(operation, keys or ("key",), deadline_ms=deadline_ms, now_ms=now_ms)
    return operation


# ------------------------------------------------------------------------------------------------ events and deadlines


def test_an_operation_is_asked_when_handed_in_and_watched_only_if_it_cannot_complete(purgatory):
    """TMR-018: Kafka asks once more after watching, because an event may have come between; here none can, except from
    the operation's own code, and that is held back until it is watched (TMR-019).
    """
    ready = Wait(ready=True)
    assert purgatory.try_complete_else_watch(ready, ["key"], deadline_ms=1000, now_ms=5)
    assert (ready.asked, ready.seen) == (1, [("complete", 5)])
    assert (purgatory.watched, purgatory.delayed) == (0, 0)
    waiting = park(purgatory, Wait())
    assert (waiting.asked, waiting.seen) == (1, [])
    assert (purgatory.watched, purgatory.delayed) == (1, 1)


def test_an_event_that_comes_while_an_operation_is_handed_in_is_not_missed(purgatory):
    """TMR-019: without a lock, because the check is made when the operation is watched."""
    operation = Wait()

    def happens() -> None:
        if operation.asked == 1:
            operation.ready = False  # not seen by the answer that is on its way
            assert purgatory.check_and_complete("key", 7) == 0
            operation.when_asked = lambda: setattr(operation, "ready", True)

    operation.when_asked = happens
    assert purgatory.try_complete_else_watch(operation, ["key"], deadline_ms=1000, now_ms=7)
    assert (operation.asked, operation.seen) == (2, [("complete", 7)])


def test_completing_succeeds_for_one_caller_and_cancels_the_deadline(purgatory):
    """TMR-020."""
    operation = park(purgatory, Wait())
    assert operation.complete(3)
    assert not operation.complete(4)
    assert (purgatory.delayed, purgatory.advance(2000)) == (0, 0)
    assert purgatory.check_and_complete("key", 2000) == 0
    assert operation.seen == [("complete", 3)]


def test_an_operation_that_was_never_handed_in_can_be_completed_too():
    operation = Wait()
    assert operation.complete(3)
    assert not operation.complete(3)


def test_checking_a_key_asks_all_of_it_and_counts_what_it_completed(purgatory):
    """TMR-021: what was completed elsewhere is dropped and not counted."""
    first, second, third, other = (park(purgatory, Wait()) for _ in range(4))
    elsewhere = park(purgatory, Wait(), "key", "elsewhere")
    assert purgatory.check_and_complete("key", 5) == 0
    assert purgatory.check_and_complete("nothing here", 5) == 0
    assert [operation.asked for operation in (first, second, third, other)] == [2, 2, 2, 2]
    first.ready = third.ready = elsewhere.ready = True
    other.complete(6)
    assert purgatory.check_and_complete("elsewhere", 7) == 1
    assert purgatory.watched == 5
    assert purgatory.check_and_complete("key", 8) == 2
    assert (second.is_completed, purgatory.watched, purgatory.delayed) == (False, 1, 1)


def test_operations_under_a_key_are_asked_oldest_first(purgatory):
    order: list[int] = []
    for number in range(5):
        park(purgatory, Wait(when_done=lambda number=number: order.append(number))).ready = True
    purgatory.check_and_complete("key", 0)
    assert order == [0, 1, 2, 3, 4]


def test_an_operation_not_satisfied_in_time_is_completed_and_then_expired(purgatory):
    """TMR-022: the others stay."""
    short, long = park(purgatory, Wait(), deadline_ms=20), park(purgatory, Wait(), deadline_ms=2000)
    assert purgatory.advance(20) == 1
    assert short.seen == [("complete", 20), ("expire", 20)]
    assert (long.seen, purgatory.delayed) == ([], 1)
    assert short.asked == 1


def test_a_deadline_is_never_early_and_the_next_one_is_known(purgatory):
    """TMR-023."""
    operation = park(purgatory, Wait(), deadline_ms=15)
    assert purgatory.next_deadline_ms() == 15
    assert purgatory.advance(14) == 0
    assert purgatory.advance(3) == 0
    assert not operation.is_completed
    assert purgatory.advance(15) == 1
    assert purgatory.next_deadline_ms() is None


def test_a_deadline_that_has_passed_is_reached_by_the_next_advance(purgatory):
    purgatory.advance(100)
    operation = park(purgatory, Wait(), deadline_ms=100, now_ms=100)
    assert purgatory.next_deadline_ms() == 100
    assert purgatory.advance(100) == 1
    assert operation.seen == [("complete", 100), ("expire", 100)]


def test_watched_counts_entries_and_delayed_counts_operations(purgatory):
    """TMR-024: completing lowers delayed at once, watched only when the key is checked."""
    first = park(purgatory, Wait(), "a")
    second = park(purgatory, Wait(), "a", "b")
    third = park(purgatory, Wait(), "a", "b", "c")
    assert (purgatory.watched, purgatory.delayed) == (6, 3)
    second.complete(0)
    assert (purgatory.watched, purgatory.delayed) == (6, 2)
    third.ready = True
    assert purgatory.check_and_complete("b", 0) == 1
    assert (purgatory.watched, purgatory.delayed) == (4, 1)
    first.ready = True
    assert purgatory.check_and_complete("a", 0) == 1
    assert (purgatory.watched, purgatory.delayed) == (1, 0)


def test_a_key_named_twice_counts_once(purgatory):
    park(purgatory, Wait(), "a", "a", "b")
    assert purgatory.watched == 2


def test_watch_lists_are_swept_when_they_hold_too_much_that_is_completed():
    """TMR-025: over 1000 entries unless told otherwise; at the next advance()."""
    purgatory: Purgatory[Wait] = Purgatory(0)
    operations = [park(purgatory, Wait(), f"a-{n}", f"b-{n}") for n in range(501)]
    for operation in operations[:500]:
        operation.complete(0)
    purgatory.advance(1)
    assert purgatory.watched == 1002
    operations[500].complete(1)
    assert purgatory.watched == 1002
    purgatory.advance(2)
    assert purgatory.watched == 0
    purgatory.check_invariants()


def test_what_expires_is_swept_too():
    purgatory: Purgatory[Wait] = Purgatory(0, purge_interval=3)
    for deadline_ms in (1, 2, 3, 4, 50):
        park(purgatory, Wait(), "x", deadline_ms=deadline_ms)
    assert purgatory.advance(3) == 3
    assert purgatory.watched == 5
    assert purgatory.advance(4) == 1
    assert purgatory.watched == 1


def test_what_is_dropped_by_checks_is_not_kept_for_the_sweep():
    purgatory: Purgatory[Wait] = Purgatory(0)
    operation = park(purgatory, Wait(), "a", "b")
    seen = weakref.ref(operation)
    operation.ready = True
    purgatory.check_and_complete("a", 0)
    del operation
    assert seen() is not None
    purgatory.check_and_complete("b", 0)
    assert seen() is None


def test_cancelling_a_key_gives_back_its_operations_not_completed(purgatory):
    """TMR-026: two of three, without their deadlines; the key is gone."""
    first, second, third = (park(purgatory, Wait(), key) for key in ("a", "a", "b"))
    assert purgatory.cancel_for_key("a") == [first, second]
    assert purgatory.cancel_for_key("a") == []
    assert (purgatory.watched, purgatory.delayed) == (1, 1)
    assert purgatory.advance(5000) == 1
    assert (first.seen, second.seen) == ([], [])
    assert third.is_completed
    assert first.complete(5000)
    park(purgatory, second, "c")


def test_what_is_cancelled_under_one_key_may_still_be_completed_under_another(purgatory):
    operation = park(purgatory, Wait(), "a", "b")
    completed = park(purgatory, Wait(), "a")
    completed.complete(0)
    assert purgatory.cancel_for_key("a") == [operation]
    assert (purgatory.watched, purgatory.delayed, purgatory.advance(5000)) == (1, 0, 0)
    operation.ready = True
    assert purgatory.check_and_complete("b", 1) == 1
    assert operation.seen == [("complete", 1)]


# --------------------------------------------------------------------------------------------------------- re-entrancy


def test_an_event_that_comes_while_an_operation_is_asked_causes_one_more_try(purgatory):
    """TMR-027: with 100 operations, each of which becomes ready by an event in the midst of its being asked."""
    operations = [park(purgatory, Wait(), f"key-{n}") for n in range(100)]
    for number, operation in enumerate(operations):

        def event(operation: Wait = operation, key: str = f"key-{number}") -> None:
            if operation.asked == 2:
                purgatory.check_and_complete(key, 0)  # 20 threads in Kafka's test
                purgatory.check_and_complete(key, 0)
            else:
                operation.ready = True

        operation.when_asked = event
    assert [purgatory.check_and_complete(f"key-{n}", 0) for n in range(100)] == [1] * 100
    assert [operation.asked for operation in operations] == [3] * 100


def test_code_of_an_operation_may_check_any_key_and_hand_in_more(purgatory):
    """TMR-030: Kafka forbids locks that the checker of another key may hold; here there is no lock to deadlock with."""
    late = Wait(ready=True)
    second = park(purgatory, Wait(), "second")

    def goes_on() -> None:
        second.ready = True
        assert purgatory.check_and_complete("second", 0) == 0  # noted
        assert purgatory.check_and_complete("first", 0) == 0
        assert purgatory.try_complete_else_watch(late, ["second"], deadline_ms=5, now_ms=0)
        park(purgatory, Wait(), "first", "second", now_ms=0)

    first = park(purgatory, Wait(when_done=goes_on), "first")
    first.ready = True
    assert purgatory.check_and_complete("first", 0) == 3
    assert second.is_completed
    assert late.is_completed
    assert (purgatory.watched, purgatory.delayed) == (2, 1)


def test_a_chain_of_operations_that_complete_each_other_needs_no_stack(purgatory):
    count = 5000
    operations: list[Wait] = []
    for number in range(count):

        def next_one(number: int = number) -> None:
            if number + 1 < count:
                operations[number + 1].ready = True
                purgatory.check_and_complete(number + 1, 0)

        operations.append(Wait(when_done=next_one))
        purgatory.try_complete_else_watch(operations[number], [number], deadline_ms=10, now_ms=0)
    operations[0].ready = True
    assert purgatory.check_and_complete(0, 0) == count
    assert all(operation.seen == [("complete", 0)] for operation in operations)


def test_an_operation_that_triggers_itself_for_ever_does_not_keep_the_thread(purgatory):
    endless = Wait(when_asked=lambda: purgatory.check_and_complete("key", 0))
    park(purgatory, endless)
    asked = endless.asked
    assert asked < 20
    assert purgatory.next_deadline_ms() == 0  # it is owed another try, at once
    purgatory.advance(0)
    assert asked < endless.asked < 40
    endless.when_asked = lambda: setattr(endless, "ready", True)
    purgatory.advance(0)
    assert endless.is_completed


def test_an_operation_may_complete_itself_or_others_while_it_is_asked(purgatory):
    operation, other = Wait(), Wait()
    operation.when_asked = lambda: operation.complete(1)
    assert purgatory.try_complete_else_watch(operation, ["key"], deadline_ms=10, now_ms=0)
    assert (purgatory.watched, purgatory.delayed) == (0, 0)
    park(purgatory, other)
    killer = park(purgatory, Wait())
    other.when_asked = lambda: (killer.complete(2), other.complete(2))
    assert purgatory.check_and_complete("key", 2) == 2
    assert (other.seen, killer.seen) == ([("complete", 2)], [("complete", 2)])
    assert purgatory.watched == 0


def test_an_operation_may_cancel_its_own_key_while_it_is_asked(purgatory):
    operation = park(purgatory, Wait())
    operation.ready = True
    operation.when_asked = lambda: purgatory.cancel_for_key("key")
    assert purgatory.check_and_complete("key", 0) == 0
    assert not operation.is_completed  # whoever cancelled it has it
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_what_expires_together_may_complete_or_cancel_each_other(purgatory):
    by_event, by_cancel, again = Wait(), Wait(), Wait()

    def meddle() -> None:
        by_event.ready = True
        purgatory.check_and_complete("event", 10)
        assert purgatory.cancel_for_key("cancel") == [by_cancel]
        assert purgatory.cancel_for_key("again") == [again]
        park(purgatory, again, "again", deadline_ms=30, now_ms=10)
        assert purgatory.advance(10) == 0  # noted

    park(purgatory, Wait(when_done=meddle), "first", deadline_ms=10)
    park(purgatory, by_event, "event", deadline_ms=10)
    park(purgatory, by_cancel, "cancel", deadline_ms=10)
    park(purgatory, again, "again", deadline_ms=10)
    assert purgatory.advance(10) == 2
    assert by_event.seen == [("complete", 10), ("expire", 10)]  # its deadline came first
    assert by_cancel.seen == []
    assert again.seen == []
    assert purgatory.advance(30) == 1
    assert again.is_completed


def test_an_advance_inside_of_a_check_is_done_before_the_check_returns(purgatory):
    late = park(purgatory, Wait(), "late", deadline_ms=5)
    first = park(purgatory, Wait(when_done=lambda: purgatory.advance(5)), "first")
    first.ready = True
    assert purgatory.check_and_complete("first", 5) == 2
    assert late.seen == [("complete", 5), ("expire", 5)]


# --------------------------------------------------------------------------------------------------------------- errors


def fails(text: str) -> Callable[[], object]:
    def fail() -> None:
        raise ValueError(text)

    return fail


def test_an_operation_that_raises_keeps_no_other_from_its_event(purgatory):
    in_answer = park(purgatory, Wait(when_done=fails("answer")))
    in_question = park(purgatory, Wait())
    in_question.when_asked = fails("question")
    good = park(purgatory, Wait())
    in_answer.ready = in_question.ready = good.ready = True
    with pytest.raises(ValueError, match=r"^question$") as caught:
        purgatory.check_and_complete("key", 0)
    assert str(caught.value.__context__) == "answer"
    assert in_answer.is_completed
    assert good.is_completed
    assert not in_question.is_completed
    assert (purgatory.watched, purgatory.delayed) == (1, 1)
    in_question.when_asked = lambda: None
    assert purgatory.check_and_complete("key", 0) == 1


def test_an_operation_that_raises_keeps_no_other_from_its_deadline(purgatory):
    park(purgatory, Wait(when_done=fails("first")), deadline_ms=5)
    good = park(purgatory, Wait(), deadline_ms=5)
    with pytest.raises(ValueError, match=r"^first$"):
        purgatory.advance(5)
    assert good.seen == [("complete", 5), ("expire", 5)]
    assert purgatory.delayed == 0


def test_an_operation_that_raises_when_handed_in_is_not_held(purgatory):
    operation = Wait(when_asked=fails("no"))
    with pytest.raises(ValueError, match=r"^no$"):
        purgatory.try_complete_else_watch(operation, ["key"], deadline_ms=5, now_ms=0)
    assert (purgatory.watched, purgatory.delayed) == (0, 0)
    operation.when_asked = lambda: None
    park(purgatory, operation)


def test_an_interrupt_loses_no_event(purgatory):
    first, second = park(purgatory, Wait()), park(purgatory, Wait())
    first.ready = second.ready = True

    def interrupt() -> None:
        raise KeyboardInterrupt

    first.when_done = interrupt
    with pytest.raises(KeyboardInterrupt):
        purgatory.check_and_complete("key", 0)
    assert first.is_completed
    assert not second.is_completed
    assert purgatory.next_deadline_ms() == 0
    purgatory.advance(0)
    assert second.is_completed


# -------------------------------------------------------------------------------------------------------------- bad use


def test_an_operation_without_a_key_is_refused(purgatory):
    """TMR-028."""
    with pytest.raises(UsageError, match=r"^keys: got none, wanted a key or more"):
        purgatory.try_complete_else_watch(Wait(), [], deadline_ms=5, now_ms=0)


def test_an_operation_is_handed_in_once(purgatory):
    operation = park(purgatory, Wait())
    with pytest.raises(UsageError, match=r"^operation, Wait: got one that waits, wanted a new one$"):
        purgatory.try_complete_else_watch(operation, ["key"], deadline_ms=5, now_ms=0)
    operation.complete(0)
    with pytest.raises(UsageError, match=r"^operation, Wait: got a completed one, wanted a new one$"):
        purgatory.try_complete_else_watch(operation, ["key"], deadline_ms=5, now_ms=0)
    nested = Wait()
    nested.when_asked = lambda: purgatory.try_complete_else_watch(nested, ["key"], deadline_ms=5, now_ms=0)
    with pytest.raises(UsageError, match="got one that waits"):
        purgatory.try_complete_else_watch(nested, ["key"], deadline_ms=5, now_ms=0)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"operation": object()}, "^operation: got object, wanted a DelayedOperation$"),
        ({"keys": "key"}, r"^keys: got str, wanted several keys, as in \[key\]$"),
        ({"keys": [[]]}, "^keys: got .*unhashable.*, wanted hashable keys$"),
        ({"keys": 5}, "^keys: got .*not iterable, wanted hashable keys$"),
        ({"deadline_ms": 1.5}, "^deadline_ms: got float, wanted an int$"),
        ({"deadline_ms": True}, "^deadline_ms: got bool, wanted an int$"),
        ({"deadline_ms": None}, "^deadline_ms: got NoneType, wanted an int$"),
    ],
)
def test_what_cannot_be_held_is_refused_before_it_is_asked(purgatory, bad, message):
    operation = Wait(ready=True)
    given = {"operation": operation, "keys": ["key"], "deadline_ms": 5, "now_ms": 0, **bad}
    with pytest.raises(UsageTypeError, match=message):
        purgatory.try_complete_else_watch(given.pop("operation"), given.pop("keys"), **given)
    assert (operation.asked, purgatory.watched, purgatory.delayed) == (0, 0, 0)


def test_a_key_that_cannot_be_one_is_refused(purgatory):
    for call in (lambda: purgatory.check_and_complete([], 0), lambda: purgatory.cancel_for_key([])):
        with pytest.raises(UsageTypeError, match=r"^key: got .*unhashable.*, wanted a hashable key$"):
            call()


def test_numbers_out_of_range_are_refused():
    with pytest.raises(UsageError, match=r"^purge_interval: got -1, wanted 0 or more$"):
        Purgatory(0, purge_interval=-1)
    with pytest.raises(UsageTypeError, match=r"^purge_interval: got str, wanted an int$"):
        Purgatory(0, purge_interval="1000")
    with pytest.raises(UsageError, match=r"^start_ms: got -1"):
        Purgatory(-1)
    with pytest.raises(UsageError, match=r"^deadline_ms: got 9223372036854775808, wanted "):
        Purgatory(0).try_complete_else_watch(Wait(), ["key"], deadline_ms=1 << 63, now_ms=0)


def test_equal_operations_are_not_taken_for_one_another(purgatory):
    @dataclass
    class Same(DelayedOperation):
        number: int

        def can_complete(self, now_ms: int) -> bool:
            return False

        def on_complete(self, now_ms: int) -> None:
            pass

    first, second = Same(1), Same(1)
    assert first == second
    for operation in (first, second):
        purgatory.try_complete_else_watch(operation, ["key"], deadline_ms=5, now_ms=0)
    assert (purgatory.watched, purgatory.delayed) == (2, 2)
    first.complete(0)
    assert not second.is_completed


def test_a_purgatory_that_is_let_go_of_goes_with_its_operations():
    purgatory: Purgatory[Wait] = Purgatory(0)
    operation = park(purgatory, Wait())
    operation.when_done = partial(purgatory.check_and_complete, "key", 0)
    seen = weakref.ref(operation), weakref.ref(purgatory)
    del operation, purgatory
    gc.collect()
    assert [one() for one in seen] == [None, None]
