package record

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// Form is the version of the encoding that this package writes and reads.
const Form = 2

// A FormError says that the bytes have a form that this program can't read.
type FormError struct{ Form uint64 }

func (e *FormError) Error() string {
	return fmt.Sprintf("it has form %d, this program reads form %d", e.Form, Form)
}

// A Batch encodes commands that a log makes safe together, under the rules of this program. The zero
// value is an empty batch.
type Batch struct {
	b        []byte
	previous previous
}

// previous is the state that a command leaves for the next one of its batch.
type previous struct {
	at         time.Duration
	session    string // when reading
	from, to   int    // when writing: where the batch has the session's text
	epoch      uint64
	lowestOpen uint64
}

// NewBatch returns an empty batch that uses the memory of room.
func NewBatch(room []byte) Batch { return Batch{b: room[:0]} }

// Append appends c. It writes the fields that c.Op uses and no others, and keeps nothing of c.
func (b *Batch) Append(c *table.Command) {
	if len(b.b) == 0 {
		b.b = appendVersions(b.b, table.RulesVersion)
	}
	w := coder{b: b.b, previous: &b.previous}
	w.command(c)
	b.b = w.b
}

// Bytes returns the encoding of the batch; nothing if the batch is empty. The next Append may
// overwrite it.
func (b *Batch) Bytes() []byte { return b.b }

// A BatchReader reads the commands of a batch.
type BatchReader struct {
	rules    uint64
	rest     []byte
	previous previous
}

// ReadBatch reads the versions of a batch.
func ReadBatch(b []byte) (*BatchReader, error) {
	r := coder{b: b, reading: true}
	rules := r.versions()
	if r.err == nil && len(r.b) == 0 {
		r.fail(errShort) // nobody writes a batch without a command
	}
	if r.err != nil {
		return nil, r.err
	}
	return &BatchReader{rules: rules, rest: r.b}, nil
}

// Rules returns the version of the rules under which the commands were applied.
func (r *BatchReader) Rules() uint64 { return r.rules }

// More reports whether the batch has another command, or bytes that are none.
func (r *BatchReader) More() bool { return len(r.rest) > 0 }

// Next returns the next command. After an error the rest of the batch can't be read.
func (r *BatchReader) Next() (table.Command, error) {
	c := coder{b: r.rest, reading: true, previous: &r.previous}
	var command table.Command
	c.command(&command)
	if c.err != nil {
		return table.Command{}, c.err
	}
	r.rest = c.b
	return command, nil
}

// An Entry is one command by itself. Rules is the version of the rules under which it was applied.
type Entry struct {
	Rules   uint64
	Command table.Command
}

// AppendEntry appends c by itself, under that version of the rules, to b: a batch of one command.
func AppendEntry(b []byte, rules uint64, c *table.Command) []byte {
	w := coder{b: appendVersions(b, rules), previous: new(previous)}
	w.command(c)
	return w.b
}

// ReadEntry reads the entry at the beginning of b, and returns the bytes after it as rest.
func ReadEntry(b []byte) (e Entry, rest []byte, err error) {
	r := coder{b: b, reading: true, previous: new(previous)}
	e.Rules = r.versions()
	r.command(&e.Command)
	if r.err != nil {
		return Entry{}, b, r.err
	}
	return e, r.b, nil
}

func appendVersions(b []byte, rules uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, Form), rules)
}

// versions reads and checks the form, and returns the version of the rules.
func (c *coder) versions() (rules uint64) {
	var form uint64
	if c.number(&form); c.err == nil && form != Form {
		c.fail(&FormError{form})
	}
	if c.number(&rules); c.err == nil && rules == 0 {
		c.fail(fmt.Errorf("its rules have version 0, they begin with 1"))
	}
	return rules
}

func (c *coder) command(x *table.Command) {
	difference(c, 1, &x.At, c.previous.at)
	c.previous.at = x.At
	enum(c, 2, &x.Op, table.Review)
	switch x.Op {
	case table.Attach:
		c.session(&x.Session)
	case table.Pass, table.Renew, table.Gone:
		c.key(&x.Key)
	case table.Claim:
		c.key(&x.Key)
		if c.tag(8, true) {
			c.want(&x.Want)
		} else {
			c.fail(fmt.Errorf("a claim has no want"))
		}
	case table.End:
		c.key(&x.Key)
		c.ending(&x.Ending)
	}
	c.end()
}

// key codes a key. If it names the same session and epoch as the previous key of the batch, it
// states so instead, and codes LowestOpen as the difference.
func (c *coder) key(k *lockkeeper.Key) {
	p := c.previous
	same := !c.reading && k.Session != "" && k.Epoch == p.epoch && k.Session == string(c.b[p.from:p.to])
	if c.bool(3, &same); !same {
		c.named(k)
	} else if c.reading {
		if p.session == "" {
			c.fail(fmt.Errorf("its session is that of the command before, but there is none"))
		}
		k.Session, k.Epoch = p.session, p.epoch
	}
	difference(c, 6, &k.LowestOpen, p.lowestOpen)
	p.lowestOpen = k.LowestOpen
	c.uint(7, &k.Acked)
}

// difference codes n as its difference to base.
func difference[T time.Duration | uint64](c *coder, tag byte, n *T, base T) {
	if !c.reading {
		d := time.Duration(*n - base)
		c.duration(tag, &d)
		return
	}
	var d time.Duration
	c.duration(tag, &d)
	*n = base + T(d)
}

// named codes the session and the epoch of a key that differ from those of the previous key.
func (c *coder) named(k *lockkeeper.Key) {
	p := c.previous
	text(c, 4, &k.Session)
	if !c.reading {
		p.from, p.to = len(c.b)-len(k.Session), len(c.b)
	}
	c.uint(5, &k.Epoch)
	if c.reading && k.Session != "" && k.Session == p.session && k.Epoch == p.epoch {
		c.fail(fmt.Errorf("its session is written though it is that of the command before"))
	}
	p.session, p.epoch, p.lowestOpen = "", k.Epoch, 0
	if c.reading {
		p.session = k.Session
	}
}

// session codes the fields of an attach, in the struct of the command.
func (c *coder) session(s *lockkeeper.Session) {
	text(c, 20, &s.ID)
	c.duration(21, &s.TTL)
	c.uint(22, &s.Epoch)
	named := elements(c, 23, &s.Named)
	for i := range named {
		c.number(&named[i])
	}
	lapsed := elements(c, 24, &s.Lapsed)
	for i := range lapsed {
		c.lapse(&lapsed[i])
	}
	c.bool(25, &s.Outlive)
	c.label(26, &s.Label)
}

// ending codes the fields of an end, in the struct of the command.
func (c *coder) ending(e *lockkeeper.Ending) {
	enum(c, 40, &e.Kind, lockkeeper.Lapsed)
	switch e.Kind {
	case lockkeeper.Release:
		c.uint(41, &e.ID)
	case lockkeeper.Revoke:
		c.ref(42, &e.Ref)
		c.bool(43, &e.Force)
		c.label(44, &e.Label)
	case lockkeeper.Thaw:
		text(c, 47, &e.Path)
	case lockkeeper.Lapsed:
		if c.tag(48, true) {
			c.lapse(&e.Lapse)
		} else {
			c.fail(fmt.Errorf("an end as lapsed states no lapse"))
		}
	case 0:
		c.fail(fmt.Errorf("an end has no kind"))
	}
}

func (c *coder) lapse(l *lockkeeper.Lapse) {
	c.uint(1, &l.ID)
	enum(c, 2, &l.Reason, lockkeeper.Quota)
	c.duration(3, &l.EndsAt)
	c.end()
}

func (c *coder) want(w *lockkeeper.Want) {
	c.uint(1, &w.ID)
	c.uint(2, &w.Revision)
	c.ref(3, &w.Inside)
	targets := elements(c, 4, &w.Targets)
	for i := range targets {
		c.target(&targets[i])
		c.end()
	}
	c.int(5, &w.Priority)
	c.duration(6, &w.Wait)
	enum(c, 7, &w.WriterPolicy, lockkeeper.Soft)
	c.duration(8, &w.Quiet)
	enum(c, 9, &w.Steal, lockkeeper.Take)
	c.duration(10, &w.After)
	c.duration(11, &w.MaxHold)
	c.duration(12, &w.Grace)
	c.duration(13, &w.Expected)
	c.duration(14, &w.Freeze)
	c.label(15, &w.Label)
	c.int(18, &w.AfterTTL)
	c.end()
}

// target codes the fields of a target. The caller codes further fields of the struct, and its end.
func (c *coder) target(t *lockkeeper.Target) {
	text(c, 1, &t.Path)
	enum(c, 2, &t.Mode, lockkeeper.ModePermits)
	c.int(3, &t.Units)
	c.int(4, &t.Limit)
}
