"""Timers by the million: a hierarchy of timing wheels, whose clock is an argument.

    wheel 0    20 buckets of    1 ms   the rest of these 20 ms:  one bucket a tick
    wheel 1    20 buckets of   20 ms   the rest of these 400 ms: one bucket a round of wheel 0
    wheel 2    20 buckets of  400 ms   the rest of these 8 s
    …          made when the first timer needs it

A bucket is a doubly linked list through the timers themselves, so a timer is put in and taken out in the same few
steps whether ten are pending or a million. When the clock comes to a bucket of a coarser wheel, its timers move to the
finer ones; when it comes to a bucket of wheel 0, they are due.

Where a timer lies follows from the clock and its deadline alone: it is in the finest wheel whose running round it falls
into. Two things come of that, and Kafka's wheels, whose rounds slide with the clock, have neither:

- What a finer wheel holds is due before anything in a coarser one. The next bucket is the first of the finest wheel
  that holds any: one word of bits a wheel says which buckets do, and no queue of buckets is needed.
- Timers of one deadline lie in one bucket, in the order in which they were armed, and move together. So that is the order
  in which they are handed out.

It owns its timers while they are pending: a Timer's `entry` holds the payload, the wheel a reference to the Timer. A
timer that is cancelled or handed out has neither, and is freed with its last reference.

One thread. No method lets other Python code run while it changes anything, so a second thread would see a whole wheel,
but it has no business there.

The idea is Varghese and Lauck's "Hashed and Hierarchical Timing Wheels" (1987), section 6.2.
"""

from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT64_MAX, int64_t, uint64_t
from libc.stdlib cimport free, malloc

from logcore._arguments cimport check_range, close_type

import types

import cython

from logcore.errors import InvariantError


cdef extern from *:
    """
    static int lc_lowest_bit(unsigned long long bits) { return __builtin_ctzll(bits); }
    /* Cython writes no tp_traverse for what C pointers own. */
    static void lc_collect_with(PyObject *type, traverseproc traverse, inquiry clear) {
        ((PyTypeObject *)type)->tp_traverse = traverse;
        ((PyTypeObject *)type)->tp_clear = clear;
    }
    """
    int lc_lowest_bit(uint64_t bits) nogil
    ctypedef int (*visitproc)(PyObject* held, void* arg) noexcept
    ctypedef int (*traverseproc)(PyObject* self, visitproc visit, void* arg) noexcept
    ctypedef int (*inquiry)(PyObject* self) noexcept
    void lc_collect_with(object kind, traverseproc traverse, inquiry clear)
    enum:
        LOGCORE_DEBUG

cdef extern from "Python.h":
    int64_t as_int64 "PyLong_AsLongLongAndOverflow"(object value, int* overflow) except? -1
    void release "Py_DECREF"(PyObject* held)
    void keep "Py_INCREF"(PyObject* held)

DEBUG = bool(LOGCORE_DEBUG)

cdef enum:
    LEVELS_MAX = 64           # of 2 buckets each, which is what 2**63 ticks take
    WHEEL_SIZE_MAX = 64       # bits of the word that says which buckets hold timers
    CHECKED_COUNT_MAX = 256   # timers up to which a debug build walks them all after each change


# ---------------------------------------------------------------------------------------------- what lies in memory

cdef struct Link:              # first in whatever is in a list: entries, and the bucket, which closes the circle
    Link* next
    Link* prev

cdef struct Bucket:
    Link link
    uint64_t* occupied         # the word and
    uint64_t bit               # the bit in it that is set while the list has entries

cdef struct Level:             # one wheel. Times are in ticks: milliseconds over tick_ms, from 0
    uint64_t width             # ticks of a bucket
    uint64_t span              # ticks of a round, width * wheel_size; 0 if that is more than 64 bits hold
    uint64_t start             # the running round: start <= clock < end, start a multiple of span
    uint64_t end
    uint64_t occupied          # bit n: bucket n has entries. The bucket that the clock is in never has
    Bucket* buckets            # wheel_size of them, in the same block

cdef struct State:
    int64_t tick_ms
    uint64_t wheel_size
    int64_t now_ms             # the latest time handed in
    uint64_t clock             # now_ms in whole ticks
    Py_ssize_t count           # pending timers, those in `due` too
    int level_count            # levels made so far, from the finest on; at least 1
    Level* levels[LEVELS_MAX]
    Bucket due                 # to be handed out by the next advance()
    uint64_t due_occupied
    bint is_due_in_order       # by deadline

cdef struct Entry:             # what a Timer is beside its object header
    Link link                  # in a bucket while pending
    int64_t deadline_ms
    PyObject* payload          # owned while pending, NULL otherwise
    State* state               # of the wheel while pending, NULL otherwise


# ------------------------------------------------------------------------------------------------------------ leaves

cdef inline void begin_list(Bucket* bucket, uint64_t* occupied, uint64_t bit) noexcept nogil:
    bucket.link.next = bucket.link.prev = &bucket.link
    bucket.occupied = occupied
    bucket.bit = bit


cdef inline void append(Bucket* bucket, Entry* entry) noexcept nogil:
    cdef Link* last = bucket.link.prev
    entry.link.prev = last
    entry.link.next = &bucket.link
    last.next = &entry.link
    bucket.link.prev = &entry.link
    bucket.occupied[0] |= bucket.bit


cdef inline void unlink(Entry* entry) noexcept nogil:
    cdef Link* next = entry.link.next
    cdef Link* prev = entry.link.prev
    cdef Bucket* emptied
    prev.next = next
    next.prev = prev
    if next == prev:           # only the bucket is left
        emptied = <Bucket*>next
        emptied.occupied[0] &= ~emptied.bit


cdef inline void append_due(State* state, Entry* entry) noexcept nogil:
    cdef Link* last = state.due.link.prev
    if last != &state.due.link and (<Entry*>last).deadline_ms > entry.deadline_ms:
        state.is_due_in_order = False
    append(&state.due, entry)


cdef inline uint64_t due_tick(const State* state, int64_t deadline_ms) noexcept nogil:
    """The first tick that is not before the deadline: a timer is late by less than a tick, and never early."""
    if state.tick_ms == 1:
        return <uint64_t>deadline_ms
    return <uint64_t>(deadline_ms // state.tick_ms + (deadline_ms % state.tick_ms != 0))


cdef inline void begin_round(Level* level, uint64_t clock) noexcept nogil:
    level.start = clock - clock % level.span if level.span else 0
    level.end = level.start + level.span if level.span and level.span <= UINT64_MAX - level.start else UINT64_MAX


cdef Level* add_level(State* state) noexcept nogil:
    """The next coarser wheel: a bucket of it is a round of the one below. NULL without memory."""
    cdef size_t size = <size_t>state.wheel_size
    cdef Level* level = <Level*>malloc(sizeof(Level) + size * sizeof(Bucket))
    cdef size_t place
    if level == NULL:
        return NULL
    level.width = state.levels[state.level_count - 1].span if state.level_count else 1
    level.span = level.width * state.wheel_size if level.width <= UINT64_MAX // state.wheel_size else 0
    level.occupied = 0
    level.buckets = <Bucket*>(level + 1)
    for place in range(size):
        begin_list(&level.buckets[place], &level.occupied, <uint64_t>1 << place)
    begin_round(level, state.clock)
    state.levels[state.level_count] = level
    state.level_count += 1
    return level


cdef inline Bucket* bucket_at(State* state, uint64_t tick) noexcept nogil:
    """Where a timer belongs that is due at `tick`, after the clock: in the finest wheel whose running round has it.

    NULL if that takes a new wheel and there is no memory for it.
    """
    cdef Level* level = state.levels[0]
    cdef int place = 0
    while tick >= level.end:
        place += 1
        level = state.levels[place] if place < state.level_count else add_level(state)
        if level == NULL:
            return NULL
    return &level.buckets[(tick - level.start) // level.width]


cdef inline Bucket* bucket_for(State* state, int64_t deadline_ms) noexcept nogil:
    if deadline_ms <= state.now_ms:
        return &state.due
    return bucket_at(state, due_tick(state, deadline_ms))


cdef inline void put(State* state, Bucket* bucket, Entry* entry) noexcept nogil:
    if bucket == &state.due:
        append_due(state, entry)
    else:
        append(bucket, entry)


cdef Level* finest_occupied(State* state) noexcept nogil:
    cdef int place
    for place in range(state.level_count):
        if state.levels[place].occupied:
            return state.levels[place]
    return NULL


cdef inline uint64_t first_tick(const Level* level) noexcept nogil:
    """The tick at which the first bucket that holds timers begins."""
    return level.start + <uint64_t>lc_lowest_bit(level.occupied) * level.width


cdef void turn_to(State* state, uint64_t clock) noexcept nogil:
    """Set the clock. Rounds that have ended must be empty."""
    cdef int place
    state.clock = clock
    for place in range(state.level_count):
        if clock < state.levels[place].end:   # and so for those above, whose rounds hold this one
            break
        begin_round(state.levels[place], clock)


cdef void open_bucket(State* state, Level* level) noexcept nogil:
    """Turn to the first bucket of `level`, the finest with any, and move its timers down or into `due`."""
    cdef Bucket* bucket = &level.buckets[lc_lowest_bit(level.occupied)]
    cdef Link* link = bucket.link.next
    cdef Entry* entry
    cdef uint64_t tick
    turn_to(state, first_tick(level))
    begin_list(bucket, bucket.occupied, bucket.bit)
    level.occupied &= ~bucket.bit
    while link != &bucket.link:
        entry = <Entry*>link
        link = link.next
        tick = due_tick(state, entry.deadline_ms)
        if tick <= state.clock:
            append_due(state, entry)
        else:
            append(bucket_at(state, tick), entry)   # one that exists: the wheels below this one


cdef void turn(State* state, int64_t now_ms) noexcept nogil:
    """Bring the clock to `now_ms`, bucket by bucket; those in between that hold nothing cost nothing."""
    cdef uint64_t clock = <uint64_t>(now_ms // state.tick_ms)
    cdef Level* level = finest_occupied(state)
    while level != NULL and first_tick(level) <= clock:
        open_bucket(state, level)
        level = finest_occupied(state)
    turn_to(state, clock)
    state.now_ms = now_ms


cdef Link* merged(Link* first, Link* second) noexcept nogil:
    """Two chains, each in order and ended by NULL, as one; of equal deadlines the first chain's come first."""
    cdef Link* head = NULL
    cdef Link** tail = &head
    while first != NULL and second != NULL:
        if (<Entry*>second).deadline_ms < (<Entry*>first).deadline_ms:
            tail[0] = second
            second = second.next
        else:
            tail[0] = first
            first = first.next
        tail = &tail[0].next
    tail[0] = first if first != NULL else second
    return head


cdef void put_due_in_order(State* state) noexcept nogil:
    """A merge sort: stable, and without memory of its own. runs[n] is a chain of 2**n entries, or NULL."""
    cdef Link* runs[64]
    cdef Link* link = state.due.link.next
    cdef Link* run
    cdef Link* following
    cdef int place, top = 0
    if state.is_due_in_order:
        return
    while link != &state.due.link:
        following = link.next
        link.next = NULL
        run = link
        place = 0
        while place < top and runs[place] != NULL:
            run = merged(runs[place], run)
            runs[place] = NULL
            place += 1
        runs[place] = run
        if place == top:
            top += 1
        link = following
    run = NULL
    for place in range(top):
        if runs[place] != NULL:
            run = merged(runs[place], run)
    begin_list(&state.due, state.due.occupied, state.due.bit)
    while run != NULL:
        following = run.next
        append(&state.due, <Entry*>run)
        run = following
    state.is_due_in_order = True


cdef Py_ssize_t length(const Bucket* bucket) noexcept nogil:
    cdef Py_ssize_t count = 0
    cdef const Link* link = bucket.link.next
    while link != &bucket.link:
        count += 1
        link = link.next
    return count


# ------------------------------------------------------------------------------------------------- leaves with objects

cdef inline PyObject* timer_of(Entry* entry) noexcept:
    return <PyObject*>(<char*>entry - sizeof(PyObject))   # checked at the end of this file


cdef inline PyObject* disarm(Entry* entry) noexcept:
    """Take a pending entry out of its wheel. Returns the payload; that and the wheel's reference are now the caller's."""
    cdef PyObject* payload = entry.payload
    unlink(entry)
    entry.state.count -= 1
    entry.state = NULL
    entry.payload = NULL
    return payload


cdef void let_go_of_all(State* state) noexcept:
    """Cancel every timer. Payloads are released last, when none is pending: releasing one may run any code."""
    cdef Bucket gone
    cdef uint64_t word = 0
    cdef Bucket* bucket
    cdef Entry* entry
    cdef PyObject* payload
    cdef uint64_t number
    cdef int place
    if state.due.link.next == NULL:   # __cinit__ was refused its arguments
        return
    begin_list(&gone, &word, 1)
    for place in range(state.level_count + 1):
        for number in range(1 if place == state.level_count else state.wheel_size):
            bucket = &state.due if place == state.level_count else &state.levels[place].buckets[number]
            while bucket.link.next != &bucket.link:
                entry = <Entry*>bucket.link.next
                payload = disarm(entry)
                append(&gone, entry)
                entry.payload = payload
    state.is_due_in_order = True
    while gone.link.next != &gone.link:
        entry = <Entry*>gone.link.next
        unlink(entry)
        payload = entry.payload
        entry.payload = NULL
        release(payload)
        release(timer_of(entry))


cdef int visit_bucket(Bucket* bucket, visitproc visit, void* arg) noexcept:
    cdef Link* link = bucket.link.next
    cdef int stop
    while link != &bucket.link:
        stop = visit((<Entry*>link).payload, arg)
        if stop:
            return stop
        link = link.next
    return 0


cdef int visit_all(PyObject* self, visitproc visit, void* arg) noexcept:
    """For the garbage collector: a payload may lead back to the wheel. Timers are no business of its."""
    cdef State* state = &(<TimingWheel>self).state
    cdef uint64_t number
    cdef int place, stop
    if state.due.link.next == NULL:
        return 0
    for place in range(state.level_count):
        for number in range(state.wheel_size):
            stop = visit_bucket(&state.levels[place].buckets[number], visit, arg)
            if stop:
                return stop
    return visit_bucket(&state.due, visit, arg)


cdef int clear_all(PyObject* self) noexcept:
    let_go_of_all(&(<TimingWheel>self).state)
    return 0


# ----------------------------------------------------------------------------------------------------------- invariants

cdef int broken(str what, object got, object wanted) except -1:
    raise InvariantError(f"timing wheel: {what} got {got}, wanted {wanted}")


cdef Py_ssize_t check_bucket(State* state, Bucket* bucket, str where) except -1:
    cdef Link* link = &bucket.link
    cdef Entry* entry
    cdef uint64_t tick
    cdef Py_ssize_t count = 0
    while True:
        if link.next.prev != link:
            broken(f"{where}, link {count} back", "another", "this one")
        link = link.next
        if link == &bucket.link:
            break
        entry = <Entry*>link
        count += 1
        if entry.state != state or entry.payload == NULL:
            broken(f"{where}, entry {count}", "one that is not pending", "a pending one")
        if bucket == &state.due:
            if entry.deadline_ms > state.now_ms:
                broken(f"{where}, entry {count}", f"deadline {entry.deadline_ms}", f"at most {state.now_ms}")
            continue
        tick = due_tick(state, entry.deadline_ms)
        if tick <= state.clock or bucket_at(state, tick) != bucket:
            broken(f"{where}, entry {count}", f"deadline {entry.deadline_ms}", "one that belongs here")
    if bool(bucket.occupied[0] & bucket.bit) != (count > 0):
        broken(f"{where}, its bit", bool(bucket.occupied[0] & bucket.bit), count > 0)
    return count


cdef int check_state(State* state) except -1:
    cdef Py_ssize_t count = check_bucket(state, &state.due, "due")
    cdef Level* level
    cdef uint64_t number, width = 1
    cdef int place
    if state.clock != <uint64_t>(state.now_ms // state.tick_ms):
        broken("clock", state.clock, state.now_ms // state.tick_ms)
    for place in range(state.level_count):
        level = state.levels[place]
        if level.width != width or not level.start <= state.clock < level.end:
            broken(f"wheel {place}", f"width {level.width}, {level.start} to {level.end}", f"{width}, {state.clock}")
        if level.occupied & ((<uint64_t>2 << <int>((state.clock - level.start) // width)) - 1):
            broken(f"wheel {place}, occupied", bin(level.occupied), "no bucket that the clock has come to")
        width = level.span
        for number in range(state.wheel_size):
            count += check_bucket(state, &level.buckets[number], f"wheel {place}, bucket {number}")
    if count != state.count:
        broken("count", state.count, count)
    return 0


cdef inline int check_in_debug(State* state) except -1:
    if LOGCORE_DEBUG and state.count <= CHECKED_COUNT_MAX:
        check_state(state)
    return 0


# ---------------------------------------------------------------------------------------------------------------- edges

cdef inline int64_t ms_of(str what, object value) except? -1:
    cdef int overflow = 0
    cdef int64_t ms
    if PyLong_CheckExact(value):
        ms = as_int64(value, &overflow)
        if not overflow:
            return ms
    return check_range(what, value, INT64_MIN, INT64_MAX)


@cython.final
@cython.freelist(64)           # 9 of 50 ns of a timer that is added and cancelled; bench/bench_timers.py
cdef class Timer:
    """A timer of a TimingWheel, made by its add(). It takes 64 bytes.

    The wheel keeps it while it is pending; hold on to it only to cancel() or reschedule() it.
    """

    cdef Entry entry

    @property
    def deadline_ms(self):
        """The deadline as it was asked for; past it, the timer is due at the next tick."""
        return self.entry.deadline_ms

    @property
    def is_pending(self):
        """Whether it is still to be handed out: neither cancelled, nor returned by advance(), nor its wheel gone."""
        return self.entry.state != NULL

    @cython.binding(False)     # a plain method descriptor, which Python calls faster: another 7 of 50 ns
    @cython.embedsignature(True)
    @cython.embedsignature.format("clinic")
    def cancel(self):
        """Take it out of its wheel and let go of its payload, at once. Returns whether it was pending.

        >>> wheel = TimingWheel(start_ms=0)
        >>> timer = wheel.add(30_000, "never mind")
        >>> timer.cancel(), timer.cancel(), len(wheel)
        (True, False, 0)
        """
        cdef State* state = self.entry.state
        cdef PyObject* payload
        if state == NULL:
            return False
        payload = disarm(&self.entry)
        check_in_debug(state)
        release(<PyObject*>self)   # the wheel's reference; the caller has one
        release(payload)           # last, because it may run any code
        return True

    def reschedule(self, deadline_ms):
        """Give a pending timer another deadline, as if it were armed now. Returns whether it was pending.

        One that was cancelled or handed out stays so: its payload is gone, and has to be added again.

        >>> wheel = TimingWheel(start_ms=0)
        >>> session = wheel.add(10_000, "session 7")
        >>> session.reschedule(13_000)                     # a heartbeat came after 3 s
        True
        >>> wheel.advance(12_999), wheel.advance(13_000)
        ([], ['session 7'])
        >>> session.reschedule(20_000)
        False
        """
        cdef int64_t deadline = ms_of("deadline_ms", deadline_ms)
        cdef State* state = self.entry.state
        cdef Bucket* bucket
        if state == NULL:
            return False
        bucket = bucket_for(state, deadline)
        if bucket == NULL:
            raise MemoryError
        unlink(&self.entry)
        self.entry.deadline_ms = deadline
        put(state, bucket, &self.entry)
        check_in_debug(state)
        return True

    def __repr__(self):
        return f"Timer(deadline_ms={self.entry.deadline_ms}, {'pending' if self.is_pending else 'not pending'})"


@cython.final
cdef class TimingWheel:
    """Timers by the million; adding, cancelling and rescheduling one takes the same time however many are pending.

        start_ms      what the clock shows now, from 0
        tick_ms       how fine deadlines are told apart
        wheel_size    buckets of each wheel, 2 to 64; coarser wheels hold tick_ms * wheel_size ** n ms each

    It reads no clock: advance(now_ms) is told the time and hands out what is due. Never early; late by less than a tick,
    which at the default of 1 ms is not at all; each timer once. What one advance() hands out is ordered by deadline, and
    by when it was armed where deadlines are equal.

    Deadlines are points in time, not delays: a delay would count from the last advance(), and so end early. A deadline
    that is not after now_ms is due at once: the next advance() hands it out, whatever time it is told.

    A timer takes 64 bytes beside its payload, a wheel some 700. len() is the number of pending timers. A wheel that goes
    away takes its timers along: they are cancelled. For one thread.

    >>> wheel = TimingWheel(start_ms=1_000)
    >>> fetch = wheel.add(1_190, "answer the fetch")
    >>> produce = wheel.add(31_000, "fail the produce")
    >>> produce.cancel()                                   # its replicas were in time
    True
    >>> wheel.next_deadline_ms()                           # a loop may sleep until then
    1180
    >>> wheel.advance(1_180), wheel.next_deadline_ms()     # a bucket of 20 ms was opened: now it is known to the ms
    ([], 1190)
    >>> wheel.advance(1_190)
    ['answer the fetch']
    """

    cdef State state
    cdef object collected      # None: an attribute that makes this one of the garbage collector's types

    __class_getitem__ = classmethod(types.GenericAlias)

    def __cinit__(self, start_ms, *, tick_ms=1, wheel_size=20):
        cdef State* state = &self.state
        begin_list(&state.due, &state.due_occupied, 1)
        state.is_due_in_order = True
        state.now_ms = check_range("start_ms", start_ms, 0, INT64_MAX)
        state.tick_ms = check_range("tick_ms", tick_ms, 1, INT64_MAX)
        state.wheel_size = check_range("wheel_size", wheel_size, 2, WHEEL_SIZE_MAX)
        state.clock = <uint64_t>(state.now_ms // state.tick_ms)
        if add_level(state) == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int place
        let_go_of_all(&self.state)
        for place in range(self.state.level_count):
            free(self.state.levels[place])

    @cython.binding(False)
    @cython.embedsignature(True)
    @cython.embedsignature.format("clinic")
    def add(self, deadline_ms, payload):
        """Arm a timer: `payload` is handed out by the first advance() to a time that is not before `deadline_ms`.

        `deadline_ms` is any int of 64 bits. If it is not after now_ms, the timer is due at once: the next advance() has
        it, and next_deadline_ms() says now.

        >>> wheel = TimingWheel(start_ms=5)
        >>> wheel.add(5, "no delay"), wheel.add(-1, "long ago")
        (Timer(deadline_ms=5, pending), Timer(deadline_ms=-1, pending))
        >>> wheel.advance(5)
        ['long ago', 'no delay']
        """
        cdef int64_t deadline = ms_of("deadline_ms", deadline_ms)
        cdef State* state = &self.state
        cdef Bucket* bucket
        cdef Timer timer = Timer.__new__(Timer)
        bucket = bucket_for(state, deadline)
        if bucket == NULL:
            raise MemoryError
        timer.entry.deadline_ms = deadline
        timer.entry.state = state
        timer.entry.payload = <PyObject*>payload
        keep(timer.entry.payload)
        keep(<PyObject*>timer)
        put(state, bucket, &timer.entry)
        state.count += 1
        check_in_debug(state)
        return timer

    def advance(self, now_ms):
        """Bring the clock to `now_ms`, and return the payloads of all timers that are due, in order of their deadlines.

        The list is empty when there are none. A time before the latest one changes nothing: the clock stays, and what
        is due at once is still handed out. The cost is that of the timers which are due or move to a finer wheel; time
        that passed costs nothing by itself.

        >>> wheel = TimingWheel(start_ms=0, tick_ms=10)
        >>> for deadline_ms in (25, 30, 21):
        ...     timer = wheel.add(deadline_ms, deadline_ms)
        >>> wheel.advance(29), wheel.advance(30)           # a tick is 10 ms, and no timer is early
        ([], [21, 25, 30])
        >>> wheel.advance(7), wheel.now_ms
        ([], 30)
        """
        cdef int64_t now = ms_of("now_ms", now_ms)
        cdef State* state = &self.state
        cdef Py_ssize_t count, place = 0
        cdef Entry* entry
        cdef PyObject* payload
        cdef list found
        if now > state.now_ms:
            turn(state, now)
        count = length(&state.due)
        # Here the garbage collector may run any code, which may add and cancel; until the end nothing else can.
        found = PyList_New(count)
        put_due_in_order(state)
        while place < count and state.due.link.next != &state.due.link:
            entry = <Entry*>state.due.link.next
            payload = disarm(entry)
            PyList_SET_ITEM(found, place, <object>payload)   # the list takes over the timer's reference
            release(timer_of(entry))
            place += 1
        if place < count:
            found = found[:place]
        check_in_debug(state)
        return found

    def next_deadline_ms(self):
        """The time before which no timer is due, or None if none is pending: so long may a loop sleep.

        now_ms if a timer is due already. Otherwise it is where the next bucket begins. Up to a round ahead that is a
        tick, so the deadline itself; further ahead it may be earlier, and advance() to it opens the bucket and finds
        nothing due. That happens at most once for each wheel: five times for a timer an hour ahead.
        """
        cdef State* state = &self.state
        cdef Level* level
        cdef uint64_t tick
        if state.due_occupied:
            return state.now_ms
        level = finest_occupied(state)
        if level == NULL:
            return None
        tick = first_tick(level)
        return <int64_t>tick * state.tick_ms if tick <= <uint64_t>(INT64_MAX // state.tick_ms) else INT64_MAX

    def clear(self):
        """Cancel every timer and let go of all payloads.

        >>> wheel = TimingWheel(start_ms=0)
        >>> timer = wheel.add(10, "x")
        >>> wheel.clear()
        >>> len(wheel), timer.is_pending
        (0, False)
        """
        let_go_of_all(&self.state)
        check_in_debug(&self.state)

    @property
    def now_ms(self):
        """The latest time handed in."""
        return self.state.now_ms

    @property
    def tick_ms(self):
        """How fine deadlines are told apart."""
        return self.state.tick_ms

    @property
    def wheel_size(self):
        """Buckets of each wheel."""
        return self.state.wheel_size

    def __len__(self):
        return self.state.count

    def __repr__(self):
        return f"TimingWheel({self.state.count} pending, now_ms={self.state.now_ms})"

    def wheels(self):
        """What each wheel holds, for tests and for the curious: (tick_ms, current_ms, {bucket: timers in it}).

        Timers that are due at once are in none.

        >>> wheel = TimingWheel(start_ms=1_000, tick_ms=10, wheel_size=3)
        >>> near, far = wheel.add(1_010, "near"), wheel.add(1_065, "far")
        >>> wheel.wheels()
        [(10, 1000, {2: 1}), (30, 990, {2: 1})]
        """
        cdef State* state = &self.state
        cdef Level* level
        cdef int place
        found = []
        for place in range(state.level_count):
            level = state.levels[place]
            current = state.clock - state.clock % level.width
            counts = {number: length(&level.buckets[number]) for number in range(state.wheel_size)}
            found.append((
                int(level.width) * state.tick_ms, int(current) * state.tick_ms,
                {number: count for number, count in counts.items() if count},
            ))
        return found

    def check_invariants(self):
        """Walk all of it, and raise InvariantError at what cannot be. Debug builds do so after each change."""
        check_state(&self.state)


lc_collect_with(TimingWheel, visit_all, clear_all)


cdef int check_layout() except -1:
    cdef Timer timer = Timer.__new__(Timer)
    if timer_of(&timer.entry) != <PyObject*>timer:
        raise InvariantError("timing wheel: a Timer's entry does not follow its object header")
    return 0

check_layout()
close_type(Timer, "one that TimingWheel.add() has made")
