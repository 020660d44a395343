"""The purgatory against a list of operations that is searched from end to end: the same completions, in one order."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from logcore.replication import DelayedOperation, Purgatory

KEYS = "abcd"


@dataclass
class World:
    """What operations wait for: each key has a level, which only rises. What happened is in `seen`."""

    levels: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    seen: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """One operation: it can complete when its keys' levels sum up to `need`; when it does, it raises another's."""

    name: int
    keys: tuple[str, ...]
    need: int
    deadline_ms: int
    raises: str | None

    def can_complete(self, world: World) -> bool:
        return sum(world.levels[key] for key in self.keys) >= self.need

    def tell(self, world: World, what: str, now_ms: int) -> None:
        world.seen.append((what, self.name, now_ms))
        if what == "complete" and self.raises is not None:
            world.levels[self.raises] += 1


class Parked(DelayedOperation):
    def __init__(self, plan: Plan, world: World, purgatory: Purgatory[Parked]) -> None:
        self.plan, self.world, self.purgatory = plan, world, purgatory

    def can_complete(self, now_ms: int) -> bool:
        return self.plan.can_complete(self.world)

    def on_complete(self, now_ms: int) -> None:
        self.plan.tell(self.world, "complete", now_ms)
        if self.plan.raises is not None:
            self.purgatory.check_and_complete(self.plan.raises, now_ms)

    def on_expiration(self, now_ms: int) -> None:
        self.plan.tell(self.world, "expire", now_ms)


class Model:
    """The purgatory, naively. It knows nothing of lists per key, wheels and sweeps, and never calls itself."""

    def __init__(self) -> None:
        self.world = World()
        self.waiting: dict[int, Plan] = {}
        self.keys: dict[int, set[str]] = {}
        self.timed: set[int] = set()
        self.now_ms = 0
        self.noted: list[str] = []

    def complete(self, name: int, now_ms: int) -> bool:
        plan = self.waiting.pop(name, None)
        if plan is None:
            return False
        self.timed.discard(name)
        plan.tell(self.world, "complete", now_ms)
        if plan.raises is not None:
            self.noted.append(plan.raises)
        return True

    def work(self, now_ms: int) -> None:
        while self.noted:
            keys, self.noted = dict.fromkeys(self.noted), []
            for key in keys:
                for name, plan in list(self.waiting.items()):
                    if key in self.keys[name] and plan.can_complete(self.world):
                        self.complete(name, now_ms)

    def hand_in(self, plan: Plan, now_ms: int) -> None:
        self.waiting[plan.name] = plan
        self.keys[plan.name] = set(plan.keys)
        self.timed.add(plan.name)
        if plan.can_complete(self.world):
            self.complete(plan.name, now_ms)
        self.work(now_ms)

    def check(self, key: str, now_ms: int) -> None:
        self.noted.append(key)
        self.work(now_ms)

    def advance(self, now_ms: int) -> int:
        self.now_ms = max(self.now_ms, now_ms)
        due = [self.waiting[name] for name in self.timed if self.waiting[name].deadline_ms <= self.now_ms]
        for plan in sorted(due, key=lambda plan: (plan.deadline_ms, plan.name)):
            self.complete(plan.name, now_ms)
            plan.tell(self.world, "expire", now_ms)
        self.work(now_ms)
        return len(due)

    def cancel(self, key: str) -> list[int]:
        names = [name for name in self.waiting if key in self.keys[name]]
        for name in names:
            self.timed.discard(name)
            self.keys[name].discard(key)
        return names


one_key = st.sampled_from(KEYS)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("hand in"),
            st.lists(one_key, min_size=1, max_size=4, unique=True),
            st.integers(0, 6),
            st.integers(-5, 60),
            st.none() | one_key,
        ),
        st.tuples(st.just("event"), one_key),
        st.tuples(st.just("check"), one_key),
        st.tuples(st.just("advance"), st.integers(-10, 30)),
        st.tuples(st.just("complete"), st.integers(0, 30)),
        st.tuples(st.just("cancel"), one_key),
    ),
    max_size=60,
)


@given(steps, st.sampled_from([0, 1, 5, 1000]))
def test_the_purgatory_completes_what_a_naive_one_would(steps: list[tuple], purge_interval: int) -> None:
    model, world = Model(), World()
    purgatory: Purgatory[Parked] = Purgatory(0, purge_interval=purge_interval)
    operations: list[Parked] = []
    clock_ms = 0
    for step in steps:
        what, *rest = step
        if what == "hand in":
            keys, need, delay_ms, raises = rest
            plan = Plan(len(operations), tuple(keys), need, clock_ms + delay_ms, raises)
            operations.append(Parked(plan, world, purgatory))
            is_completed = purgatory.try_complete_else_watch(
                operations[-1], plan.keys, deadline_ms=plan.deadline_ms, now_ms=clock_ms
            )
            model.hand_in(plan, clock_ms)
            assert is_completed is operations[-1].is_completed is (plan.name not in model.waiting)
        elif what in ("event", "check"):
            [key] = rest
            if what == "event":
                world.levels[key] += 1
                model.world.levels[key] += 1
            before = len(model.waiting)
            completed = purgatory.check_and_complete(key, clock_ms)
            model.check(key, clock_ms)
            assert completed == before - len(model.waiting)
        elif what == "advance":
            clock_ms += rest[0]
            assert purgatory.advance(clock_ms) == model.advance(clock_ms)
            assert purgatory.watched <= sum(map(len, model.keys.values()))
            assert purgatory._watched_stale <= purge_interval
        elif what == "complete" and operations:
            name = rest[0] % len(operations)
            assert operations[name].complete(clock_ms) is model.complete(name, clock_ms)
            model.work(clock_ms)
        elif what == "cancel":
            assert [found.plan.name for found in purgatory.cancel_for_key(rest[0])] == model.cancel(rest[0])
        purgatory.check_invariants()
        assert world == model.world
        assert purgatory.delayed == len(model.timed)
        assert [found.is_completed for found in operations] == [n not in model.waiting for n in range(len(operations))]
    completed = [name for what, name, _ in world.seen if what == "complete"]
    assert len(completed) == len(set(completed))
