// Package clients: ordinary use of the key-value service through go-redis, in RESP2 and RESP3.
//
// Run it against a cluster that is up and holds nothing of value (its keys begin with `gosmoke:`):
//
//	amcast up                                     # prints redis=127.0.0.1:6379
//	cd clients/go && AMCAST_REDIS=127.0.0.1:6379 go test -v ./...
//
// Without AMCAST_REDIS the tests say that they are skipped.
package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func key(name any) string { return fmt.Sprintf("gosmoke:%v", name) }

// each runs a test on a clean keyspace with both versions of the protocol.
func each(t *testing.T, test func(t *testing.T, r *redis.Client)) {
	at := os.Getenv("AMCAST_REDIS")
	if at == "" {
		t.Skip("SKIPPED: AMCAST_REDIS names no cluster")
	}
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			r := redis.NewClient(&redis.Options{Addr: at, Protocol: protocol})
			defer r.Close()
			for scan := r.Scan(ctx, 0, key("*"), 100).Iterator(); scan.Next(ctx); {
				if err := r.Del(ctx, scan.Val()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			test(t, r)
		})
	}
}

// is fails the test unless a command gave this value and no error.
func is[T any](t *testing.T, want T) func(T, error) {
	t.Helper()
	return func(got T, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
}

func TestStrings(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		is(t, "OK")(r.Set(ctx, key("s"), "v", 0).Result())
		is(t, "v")(r.Get(ctx, key("s")).Result())
		is(t, int64(7))(r.IncrBy(ctx, key("n"), 7).Result())
		is(t, "OK")(r.MSet(ctx, key("a"), 1, key("b"), 2, key("c"), 3, key("d"), 4).Result())
		is(t, []any{"1", "2", "3", "4", nil})(
			r.MGet(ctx, key("a"), key("b"), key("c"), key("d"), key("none")).Result())
		if err := r.Get(ctx, key("none")).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("an absent key: %v", err)
		}
		if err := r.Incr(ctx, key("s")).Err(); err == nil {
			t.Error("INCR of a word")
		}
	})
}

func TestPipelines(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		var gets []*redis.StringCmd
		_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range 500 {
				p.Set(ctx, key(i), i, 0)
				gets = append(gets, p.Get(ctx, key(i)))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, get := range gets {
			is(t, fmt.Sprint(i))(get.Result())
		}
	})
}

func TestTransactions(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		var all *redis.SliceCmd
		_, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, key("a"), 1, 0)
			p.Set(ctx, key("b"), 2, 0)
			p.Set(ctx, key("c"), 3, 0)
			all = p.MGet(ctx, key("a"), key("b"), key("c"))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		is(t, []any{"1", "2", "3"})(all.Result())
		err = r.Watch(ctx, func(tx *redis.Tx) error {
			if err := tx.Get(ctx, key("a")).Err(); err != nil {
				return err
			}
			is(t, "OK")(r.Set(ctx, key("a"), "changed by another", 0).Result())
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Set(ctx, key("b"), 99, 0)
				return nil
			})
			return err
		}, key("a"))
		if !errors.Is(err, redis.TxFailedErr) {
			t.Errorf("a watched key was changed, and the transaction gave %v", err)
		}
		is(t, "2")(r.Get(ctx, key("b")).Result())
	})
}

func TestScans(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		for i := range 100 {
			is(t, "OK")(r.Set(ctx, key(fmt.Sprintf("scan%d", i)), i, 0).Result())
		}
		found := map[string]bool{}
		scan := r.Scan(ctx, 0, key("scan*"), 7).Iterator()
		for scan.Next(ctx) {
			found[scan.Val()] = true
		}
		if scan.Err() != nil || len(found) != 100 {
			t.Errorf("%d keys of 100, %v", len(found), scan.Err())
		}
	})
}

func TestCollections(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		is(t, int64(2))(r.HSet(ctx, key("h"), "a", 1, "b", 2).Result())
		is(t, map[string]string{"a": "1", "b": "2"})(r.HGetAll(ctx, key("h")).Result())
		is(t, int64(3))(r.RPush(ctx, key("l"), "x", "y", "z").Result())
		is(t, []string{"x", "y", "z"})(r.LRange(ctx, key("l"), 0, -1).Result())
		is(t, "x")(r.LPop(ctx, key("l")).Result())
		is(t, int64(3))(r.SAdd(ctx, key("p"), 1, 2, 3).Result())
		is(t, int64(2))(r.SAdd(ctx, key("q"), 3, 4).Result())
		is(t, []string{"3"})(r.SInter(ctx, key("p"), key("q")).Result())
		is(t, int64(2))(r.ZAdd(ctx, key("z"), redis.Z{Score: 2.5, Member: "b"},
			redis.Z{Score: 1, Member: "a"}).Result())
		is(t, []redis.Z{{Score: 1, Member: "a"}, {Score: 2.5, Member: "b"}})(
			r.ZRangeWithScores(ctx, key("z"), 0, -1).Result())
	})
}

func TestExpiry(t *testing.T) {
	each(t, func(t *testing.T, r *redis.Client) {
		is(t, "OK")(r.Set(ctx, key("e"), 1, 60*time.Millisecond).Result())
		deadline := time.Now().Add(5 * time.Second)
		for !errors.Is(r.Get(ctx, key("e")).Err(), redis.Nil) {
			if time.Now().After(deadline) {
				t.Fatal("a key outlives its time")
			}
			time.Sleep(10 * time.Millisecond)
		}
		is(t, "OK")(r.Set(ctx, key("stays"), 1, 100*time.Second).Result())
		is(t, true)(r.Persist(ctx, key("stays")).Result())
		is(t, time.Duration(-1))(r.TTL(ctx, key("stays")).Result())
	})
}
