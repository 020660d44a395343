"""Kafka's record format, slow and plain: the executable spec that the compiled codec is compared with.

Nothing here is fast and nothing here imports logcore: a mistake in the compiled code cannot hide in its own
reference. Bytes are sliced, integers are Python's, and every place where Java's 32 or 64 bits matter says so.

Reading order:

    model.py        what a reader gets: RefRecord, RefBatch; what it raises: Refused, RefKafkaError; Java's integers
    varint.py       zig-zag varints, as lenient as Kafka's
    checksum.py     CRC-32C from a table, CRC-32, xxHash32
    murmur2.py      the partitioner's hash
    compression.py  the four codecs, accepting the streams that Kafka's readers accept, under a cap
    batch_v2.py     magic 2: header, records, the key-skipping reader, the writer
    legacy.py       magic 0 and 1: messages, compressed wrappers, the writer
    control.py      control records: the types and the end-of-transaction marker
    stream.py       a buffer of many batches: decode_batches
    validate.py     what a leader does with a produced buffer before it appends it
    builder.py      what it writes when it cannot patch the buffer in place
    siphash.py      SipHash with 128 bits out, rounds to choose
    compaction.py   the offset map, filling it, and filtering batches

Where Kafka's reader fails with a Java runtime exception instead of one of its own (an IndexOutOfBounds from a short
message, an IllegalArgument from an overlong varint), the reference refuses with the reason that fits.
"""
