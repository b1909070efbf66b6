package membership

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Record is what one server answered to Observe, or that it did not answer. Its zero value is a
// server that did not answer.
type Record struct {
	Answered bool
	Why      error // why not, for people

	// Loses says that the server is set so that a restart may lose what it has answered. Observe does
	// not know it: the caller sets it.
	Loses bool

	RunID string // of the process that answered
	Now   int64  // the server's clock, in microseconds

	// What the server keeps. A server without a record is empty: all fields are zero.
	Generation Generation
	Recorded   string // the run id with which the record was last verified
	Durable    bool   // the server was durable then
	Servers    int
	Index      int
	Names      []string
	Vector     Vector // of a member; else zero
	Out        int64  // of a server that lost its data: when it may become a member; 0: not known yet
}

// intact reports whether the server has lost nothing since its record was verified last. If a durable
// server is not set to be one any more, it may have begun with old data, or do so next time, and
// nothing in that data would show it. So it counts as a server that lost its data.
func (r *Record) intact() bool {
	if r.Durable {
		return r.Generation != 0 && !r.Loses
	}
	return r.Generation != 0 && r.Recorded == r.RunID
}

// member reports whether the server is a member that lost nothing, as far as its record tells.
func (r *Record) member() bool { return r.intact() && r.Vector.Set != "" }

// parseRecord reads the reply of the script observe: run id, seconds, microseconds, and the fields of
// the hash with their values.
func parseRecord(reply any) (Record, error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) < 3 || len(parts)%2 == 0 {
		return Record{}, fmt.Errorf("the server's answer %.80v is no record of a set", reply)
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		if texts[i], ok = p.(string); !ok {
			return Record{}, fmt.Errorf("the server's answer %.80v is no record of a set", reply)
		}
	}
	r := Record{Answered: true, RunID: texts[0]}
	seconds, err1 := strconv.ParseInt(texts[1], 10, 43)
	micros, err2 := strconv.ParseInt(texts[2], 10, 21)
	if err1 != nil || err2 != nil || r.RunID == "" {
		return Record{}, fmt.Errorf("the server answers no time or run id: %.80q", texts[:3])
	}
	r.Now = seconds*int64(time.Second/time.Microsecond) + micros
	fields := make(map[string]string)
	for i := 3; i < len(texts); i += 2 {
		fields[texts[i]] = texts[i+1]
	}
	if len(fields) == 0 {
		return r, nil
	}
	return r, r.read(fields)
}

// read reads the fields of the hash. Everybody who can write to the server may have written them.
func (r *Record) read(fields map[string]string) (err error) {
	if r.Generation, err = parseGeneration(fields["gen"]); err != nil {
		return err
	}
	if r.Vector, err = ParseVector(fields["marker"]); err != nil {
		return err
	}
	r.Recorded, r.Durable = fields["run_id"], fields["durable"] == "1"
	r.Names = strings.Fields(fields["names"])
	var err1, err2, err3 error
	r.Servers, err1 = strconv.Atoi(fields["n"])
	r.Index, err2 = strconv.Atoi(fields["index"])
	if out := fields["out"]; out != "" {
		r.Out, err3 = strconv.ParseInt(out, 10, 54)
	}
	if err1 != nil || err2 != nil || err3 != nil || len(r.Names) != r.Servers || r.Index < 0 || r.Index >= r.Servers ||
		r.Out < 0 || r.Vector.Set != "" && len(r.Vector.Generations) != r.Servers {
		return fmt.Errorf("the record of the set is damaged: %.200v", fields)
	}
	return nil
}

// Ends is what a member states of the promises that it has given.
type Ends struct {
	RunID    string
	Marker   string
	Left     time.Duration // until its last session ends; 0: it has none
	Floor    uint64        // its highest fence
	Sessions int
}

// parseEnds reads the reply of the script ends.
func parseEnds(reply any) (Ends, error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) != 5 {
		return Ends{}, fmt.Errorf("the server's answer %.80v states no ends of sessions", reply)
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		if texts[i], ok = p.(string); !ok {
			return Ends{}, fmt.Errorf("the server's answer %.80v states no ends of sessions", reply)
		}
	}
	left, err1 := strconv.ParseInt(texts[2], 10, 53)
	floor, err2 := strconv.ParseUint(texts[3], 10, 53)
	sessions, err3 := strconv.Atoi(texts[4])
	if err1 != nil || err2 != nil || err3 != nil {
		return Ends{}, fmt.Errorf("the server's answer %.80q states no ends of sessions", texts)
	}
	return Ends{
		RunID:    texts[0],
		Marker:   texts[1],
		Left:     time.Duration(max(left, 0)) * time.Microsecond,
		Floor:    floor,
		Sessions: sessions,
	}, nil
}
