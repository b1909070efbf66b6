package interleave_test

import (
	"fmt"
	"reflect"
)

// clear frees everything and checks that nothing remains. Every key must then work as a new one.
func (b *bench) clear() error {
	c := b.setup
	for i := range maxKeys {
		c.held(string(rune('a' + i)))
	}
	for o := range b.owners {
		if b.owners[o] != nil {
			c.close(int8(o))
		}
	}
	for i, s := range b.slots {
		if s != nil {
			c.release(slot(i))
		}
	}
	c.all()
	if err := b.table(); err != nil {
		return err
	}
	for i := range maxKeys {
		c.use(string(rune('a'+i)), 1)
	}
	return b.table()
}

// table checks the cells of all shards while no slot is held.
func (b *bench) table() error {
	shards := reflect.ValueOf(b.m).Elem().FieldByName("shards")
	for i := range shards.Len() {
		s := shards.Index(i)
		cells := s.FieldByName("cells").FieldByName("value").Elem()
		size, keep := s.FieldByName("size").FieldByName("value").Int(), s.FieldByName("maxIdle").Int()
		entries, idle := int64(0), int64(0)
		keys := map[string]bool{}
		for j := range cells.Len() {
			e := cells.Index(j).FieldByName("value")
			if e.IsNil() {
				continue
			}
			entries++
			keys[e.Elem().FieldByName("key").String()] = true
			if count := e.Elem().FieldByName("count").FieldByName("value").Int(); count != 0 {
				return fmt.Errorf("count %d while no slot is held", count)
			}
			pins := e.Elem().FieldByName("pins").Int()
			if pins == 0 {
				idle++
			}
			if pins < 0 {
				return fmt.Errorf("%d pins", pins)
			}
		}
		if size != entries || int(entries) != len(keys) || idle > keep || 2*entries > int64(cells.Len()) {
			return fmt.Errorf("size %d, %d entries of %d keys in %d cells, %d of them idle; %d may be", size, entries, len(keys),
				cells.Len(), idle, keep)
		}
	}
	return nil
}
