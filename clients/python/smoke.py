#!/usr/bin/env python3
"""Ordinary use of the key-value service through redis-py, in RESP2 and RESP3.

Run it against a cluster that is up and holds nothing of value (its keys begin with `smoke:`):

    amcast up                                  # prints redis=127.0.0.1:6379
    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install redis
    /tmp/venv/bin/python clients/python/smoke.py 127.0.0.1:6379

Exit code 0: every check held, or redis-py is missing (which is printed); 1: one did not.
"""

import sys
import time

try:
    import redis
except ImportError:
    print("SKIPPED: redis-py is not installed (pip install redis)")
    sys.exit(0)

KEY = "smoke:{}".format


def strings(r):
    assert r.set(KEY("s"), "v") is True
    assert r.get(KEY("s")) == "v"
    assert r.set(KEY("s"), "w", nx=True) is None
    assert r.append(KEY("s"), "xyz") == 4
    assert r.getrange(KEY("s"), 1, 2) == "xy"
    assert [r.incr(KEY("n")), r.incrby(KEY("n"), 5), r.decr(KEY("n"))] == [1, 6, 5]
    assert r.mset({KEY(i): i for i in range(20)}) is True
    assert r.mget([KEY(i) for i in range(20)] + [KEY("none")]) == [*map(str, range(20)), None]
    assert r.exists(KEY("s"), KEY("none")) == 1
    assert r.type(KEY("s")) == "string"
    try:
        r.incr(KEY("s"))
    except redis.ResponseError as e:
        assert "integer" in str(e), e
    else:
        raise AssertionError("INCR of a word")


def pipelines(r):
    with r.pipeline(transaction=False) as p:
        for i in range(500):
            p.set(KEY(f"p{i}"), i)
            p.get(KEY(f"p{i}"))
        assert p.execute()[1::2] == [str(i) for i in range(500)]


def transactions(r):
    with r.pipeline() as p:
        p.set(KEY("ta"), 1).set(KEY("tb"), 2).set(KEY("tc"), 3).mget(KEY("ta"), KEY("tb"), KEY("tc"))
        assert p.execute() == [True, True, True, ["1", "2", "3"]]
    with r.pipeline() as p:
        p.watch(KEY("ta"))
        seen = int(p.get(KEY("ta")))
        r.set(KEY("ta"), "changed by another")
        p.multi()
        p.set(KEY("tb"), seen + 1)
        try:
            p.execute()
        except redis.WatchError:
            pass
        else:
            raise AssertionError("a watched key was changed, and the transaction ran")
    assert r.get(KEY("tb")) == "2"
    assert r.transaction(lambda p: p.multi() or p.incr(KEY("tc")), KEY("tc")) == [4]


def scans(r):
    r.mset({KEY(f"scan{i}"): i for i in range(100)})
    assert set(r.scan_iter(KEY("scan*"), count=7)) == {KEY(f"scan{i}") for i in range(100)}
    r.hset(KEY("big"), mapping={f"f{i}": i for i in range(600)})
    assert len(dict(r.hscan_iter(KEY("big")))) == 600


def hashes(r):
    assert r.hset(KEY("h"), mapping={"a": 1, "b": 2}) == 2
    assert r.hgetall(KEY("h")) == {"a": "1", "b": "2"}
    assert r.hincrby(KEY("h"), "a", 4) == 5
    assert r.hmget(KEY("h"), "a", "zz") == ["5", None]
    assert r.hdel(KEY("h"), "a") == 1 and r.hlen(KEY("h")) == 1


def lists(r):
    assert r.rpush(KEY("l"), *"abcd") == 4
    assert r.lrange(KEY("l"), 0, -1) == list("abcd")
    assert r.lpop(KEY("l")) == "a" and r.rpop(KEY("l"), 2) == ["d", "c"]
    assert r.lmove(KEY("l"), KEY("l2"), "LEFT", "RIGHT") == "b" and r.llen(KEY("l")) == 0


def sets(r):
    assert r.sadd(KEY("x"), 1, 2, 3) == 3 and r.sadd(KEY("y"), 2, 3, 4) == 3
    assert r.sinter(KEY("x"), KEY("y")) == {"2", "3"}
    assert r.sunionstore(KEY("z"), KEY("x"), KEY("y")) == 4
    assert r.smembers(KEY("z")) == {"1", "2", "3", "4"}
    assert r.sismember(KEY("x"), 1) and not r.sismember(KEY("x"), 9)


def sorted_sets(r):
    assert r.zadd(KEY("zs"), {"a": 1, "b": 2.5, "c": 3}) == 3
    ranked = [tuple(pair) for pair in r.zrange(KEY("zs"), 0, -1, withscores=True)]
    assert ranked == [("a", 1.0), ("b", 2.5), ("c", 3.0)]
    assert r.zincrby(KEY("zs"), 10, "a") == 11.0
    assert r.zrank(KEY("zs"), "a") == 2 and r.zscore(KEY("zs"), "b") == 2.5
    assert r.zrangebyscore(KEY("zs"), 2, 3) == ["b", "c"]


def expiry(r):
    r.set(KEY("e"), 1, px=60)
    assert 0 < r.pttl(KEY("e")) <= 60
    r.set(KEY("stays"), 1, ex=100)
    assert 98 <= r.ttl(KEY("stays")) <= 100
    assert r.persist(KEY("stays")) and r.ttl(KEY("stays")) == -1
    deadline = time.monotonic() + 5
    while r.get(KEY("e")) is not None:
        assert time.monotonic() < deadline, "a key outlives its time"
        time.sleep(0.01)


PARTS = [strings, pipelines, transactions, scans, hashes, lists, sets, sorted_sets, expiry]


def main():
    host, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:6379").rsplit(":", 1)
    failed = 0
    for protocol in (2, 3):
        r = redis.Redis(host=host, port=int(port), protocol=protocol, decode_responses=True)
        assert r.ping()
        for part in PARTS:
            keys = list(r.scan_iter(KEY("*")))
            if keys:
                r.delete(*keys)
            try:
                part(r)
                print(f"ok      RESP{protocol} {part.__name__}")
            except Exception as e:  # Each part is judged for itself.
                failed += 1
                print(f"FAILED  RESP{protocol} {part.__name__}: {type(e).__name__} {e}")
    print(f"{failed} of {2 * len(PARTS)} parts failed, redis-py {redis.__version__}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
