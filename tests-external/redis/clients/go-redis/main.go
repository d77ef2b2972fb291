// go-redis with its defaults against a server. usage: go-redis PORT
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func must(what string, err error) {
	if err != nil {
		fail(what, err)
	}
}

func same[T comparable](what string, got, wanted T) {
	if got != wanted {
		fail(what, fmt.Errorf("got %v, and not %v", got, wanted))
	}
}

func fail(what string, err error) {
	fmt.Printf("%s: %v\n", what, err)
	os.Exit(1)
}

func refused(what string, err error, words string) {
	if err == nil || !strings.Contains(err.Error(), words) {
		fail(what, fmt.Errorf("not refused with %q: %v", words, err))
	}
}

func values(ctx context.Context, c *redis.Client) {
	must("SET", c.Set(ctx, "k", "v", 100*time.Second).Err())
	same("GET", c.Get(ctx, "k").Val(), "v")
	same("TTL", c.TTL(ctx, "k").Val() > 90*time.Second, true) // A machine may be busy.
	set, err := c.SetNX(ctx, "k", "w", 0).Result()
	must("SETNX", err)
	same("SETNX of what is there", set, false)
	same("GET of nothing", c.Get(ctx, "none").Err(), error(redis.Nil))
	must("MSET", c.MSet(ctx, "a", 1, "b", 2).Err())
	got, err := c.MGet(ctx, "a", "none", "b").Result()
	must("MGET", err)
	same("MGET", fmt.Sprint(got), fmt.Sprint([]any{"1", nil, "2"}))
	same("INCR", c.Incr(ctx, "n").Val(), int64(1))
	same("INCRBY", c.IncrBy(ctx, "n", 41).Val(), int64(42))
	same("DECRBY", c.DecrBy(ctx, "n", 43).Val(), int64(-1))
	same("EXISTS", c.Exists(ctx, "a", "b", "none").Val(), int64(2))
	same("DEL", c.Del(ctx, "a", "b", "none").Val(), int64(2))
	same("PERSIST", c.Persist(ctx, "k").Val(), true)
	same("TTL of none", c.TTL(ctx, "k").Val(), time.Duration(-1))
}

func bytesOfAnyKind(ctx context.Context, c *redis.Client) {
	key := "\r\n\x00 \xff"
	large := make([]byte, 5_000_000)
	rand.New(rand.NewSource(1)).Read(large)
	must("SET of 5 MB", c.Set(ctx, key, large, 0).Err())
	got, err := c.Get(ctx, key).Bytes()
	must("GET of 5 MB", err)
	same("the 5 MB", bytes.Equal(got, large), true)
	same("STRLEN", c.StrLen(ctx, key).Val(), int64(len(large)))
	must("DEL", c.Del(ctx, key).Err())
}

func pipelines(ctx context.Context, c *redis.Client) {
	pipe := c.Pipeline()
	for number := range 1000 {
		pipe.Set(ctx, fmt.Sprintf("p%d", number), number, 0)
		pipe.Get(ctx, fmt.Sprintf("p%d", number))
	}
	replies, err := pipe.Exec(ctx)
	must("a pipeline", err)
	same("its replies", len(replies), 2000)
	for number := range 1000 {
		same("a reply", replies[2*number+1].(*redis.StringCmd).Val(), fmt.Sprint(number))
	}
	replies, err = c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "t", 1, 0)
		pipe.Incr(ctx, "t")
		return nil
	})
	must("a transaction", err)
	same("its second reply", replies[1].(*redis.IntCmd).Val(), int64(2))
	for _, changes := range []bool{false, true} {
		err = c.Watch(ctx, func(tx *redis.Tx) error {
			number, err := tx.Get(ctx, "t").Int()
			must("GET behind WATCH", err)
			if changes {
				must("SET by another", c.Set(ctx, "t", 7, 0).Err())
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "t", number+1, 0)
				return nil
			})
			return err
		}, "t")
		same("a transaction behind WATCH fails", errors.Is(err, redis.TxFailedErr), changes)
	}
	same("what was watched", c.Get(ctx, "t").Val(), "7")
	same("MSETNX", c.MSetNX(ctx, "t", 1, "new", 2).Val(), false)
	same("RENAME", c.Rename(ctx, "t", "u").Val(), "OK")
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if strings.HasPrefix(module.Path, "github.com/redis/go-redis") {
			return module.Version
		}
	}
	return "?"
}

func main() {
	ctx := context.Background()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	must("FLUSHALL", c.FlushAll(ctx).Err())
	values(ctx, c)
	bytesOfAnyKind(ctx, c)
	pipelines(ctx, c)
	refused("LPUSH", c.LPush(ctx, "l", 1).Err(), "unknown command")
	refused("EVAL", c.Eval(ctx, "return 1", nil).Err(), "unknown command")
	refused("INCR of a word", c.Incr(ctx, "k").Err(), "not an integer")
	must("PING", c.Ping(ctx).Err())
	must("closing", errors.Join(c.Close()))
	fmt.Println("go-redis", version())
}
