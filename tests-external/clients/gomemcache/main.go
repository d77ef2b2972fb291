// gomemcache with its defaults against a server. usage: gomemcache PORT
package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"runtime/debug"

	"github.com/bradfitz/gomemcache/memcache"
)

var checks int

func must(what string, err error) {
	checks++
	if err != nil {
		fail(what, err)
	}
}

func refused(what string, err, wanted error) {
	checks++
	if !errors.Is(err, wanted) {
		fail(what, fmt.Errorf("%v, and not %v", err, wanted))
	}
}

func same[T comparable](what string, got, wanted T) {
	checks++
	if got != wanted {
		fail(what, fmt.Errorf("got %v, and not %v", got, wanted))
	}
}

func fail(what string, err error) {
	fmt.Printf("%s: %v\n", what, err)
	os.Exit(1)
}

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value), Flags: 7}
}

func is(c *memcache.Client, key, wanted string) {
	got, err := c.Get(key)
	must("get", err)
	same("get", string(got.Value), wanted)
}

func values(c *memcache.Client) {
	_, err := c.Get("none")
	refused("get of nothing", err, memcache.ErrCacheMiss)
	must("set", c.Set(item("k", "text")))
	is(c, "k", "text")
	refused("add of what is there", c.Add(item("k", "other")), memcache.ErrNotStored)
	must("add", c.Add(item("added", "other")))
	refused("replace of nothing", c.Replace(item("none", "other")), memcache.ErrNotStored)
	must("replace", c.Replace(item("k", "new")))
	must("append", c.Append(item("k", "!")))
	must("prepend", c.Prepend(item("k", "?")))
	is(c, "k", "?new!")
	got, err := c.Get("k")
	must("get", err)
	same("flags", got.Flags, uint32(7))
	got.Value = []byte("swapped")
	must("cas", c.CompareAndSwap(got))
	refused("cas of an older item", c.CompareAndSwap(got), memcache.ErrCASConflict)
	is(c, "k", "swapped")
	must("touch", c.Touch("k", 100))
	refused("touch of nothing", c.Touch("none", 100), memcache.ErrCacheMiss)
	got, err = c.GetAndTouch("k", 100)
	must("get and touch", err)
	same("get and touch", string(got.Value), "swapped")
	must("delete", c.Delete("k"))
	refused("delete of nothing", c.Delete("k"), memcache.ErrCacheMiss)
	must("set number", c.Set(item("n", "10")))
	n, err := c.Increment("n", 5)
	must("incr", err)
	same("incr", n, 15)
	n, err = c.Decrement("n", 20)
	must("decr", err)
	same("decr", n, 0)
	_, err = c.Increment("none", 1)
	refused("incr of nothing", err, memcache.ErrCacheMiss)
}

func many(c *memcache.Client) {
	var keys []string
	for number := range 300 {
		key := fmt.Sprintf("many%d", number)
		keys = append(keys, key)
		must("set", c.Set(item(key, fmt.Sprintf("value %d", number))))
	}
	found, err := c.GetMulti(append(keys, "none"))
	must("get of many", err)
	same("get of many", len(found), len(keys))
	for number, key := range keys {
		same("get of many", string(found[key].Value), fmt.Sprintf("value %d", number))
	}
}

func large(c *memcache.Client) {
	value := make([]byte, 768_000)
	rand.New(rand.NewSource(1)).Read(value)
	must("set of a large value", c.Set(&memcache.Item{Key: "large", Value: value}))
	got, err := c.Get("large")
	must("get of a large value", err)
	same("get of a large value", bytes.Equal(got.Value, value), true)
	tooLarge := &memcache.Item{Key: "too-large", Value: make([]byte, 2_000_000)}
	same("set of what is too large", c.Set(tooLarge) != nil, true)
	is(c, "added", "other")
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/bradfitz/gomemcache" {
			return module.Version
		}
	}
	return "?"
}

func main() {
	c := memcache.New("127.0.0.1:" + os.Args[1])
	must("ping", c.Ping())
	must("flush_all", c.FlushAll())
	values(c)
	many(c)
	large(c)
	must("delete of all", c.DeleteAll())
	_, err := c.Get("added")
	refused("get behind it", err, memcache.ErrCacheMiss)
	must("close", c.Close())
	fmt.Printf("gomemcache %s (text): %d checks\n", version(), checks)
}
