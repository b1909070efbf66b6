package record

import (
	"encoding/binary"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// Form is the version of the encoding that this package writes and reads.
const Form = 1

// A FormError says that the bytes have a form that this program can't read.
type FormError struct{ Form uint64 }

func (e *FormError) Error() string {
	return fmt.Sprintf("it has form %d, this program reads form %d", e.Form, Form)
}

// An Entry is one command of a log. Rules is the version of the rules under which it was applied.
type Entry struct {
	Rules   uint64
	Command table.Command
}

// AppendEntry appends the entry of c, under the rules of this program, to b. It writes the fields
// that c.Op uses and no others.
func AppendEntry(b []byte, c *table.Command) []byte {
	w := coder{b: appendVersions(b)}
	w.command(c)
	return w.b
}

// ReadEntry reads the entry at the beginning of b, and returns the bytes after it as rest.
func ReadEntry(b []byte) (e Entry, rest []byte, err error) {
	r := coder{b: b, reading: true}
	e.Rules = r.versions()
	r.command(&e.Command)
	if r.err != nil {
		return Entry{}, b, r.err
	}
	return e, r.b, nil
}

func appendVersions(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, Form), table.RulesVersion)
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
	c.duration(1, &x.At)
	enum(c, 2, &x.Op, table.Review)
	switch x.Op {
	case table.Attach:
		c.session(&x.Session)
	case table.Pass, table.Renew, table.Gone:
		c.key(&x.Key)
	case table.Claim:
		c.key(&x.Key)
		if c.tag(7, true) {
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

func (c *coder) key(k *lockkeeper.Key) {
	text(c, 3, &k.Session)
	c.uint(4, &k.Epoch)
	c.uint(5, &k.LowestOpen)
	c.uint(6, &k.Acked)
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
