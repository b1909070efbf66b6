package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/access"
)

// terraformTTL is how long a state is locked for if nobody unlocks it and the address
// says nothing else. Terraform sends no heartbeat, so it must be longer than any
// apply; who was killed is got rid of by force-unlock.
const terraformTTL = 24 * time.Hour

const (
	maxLockID     = 128          // bytes of Terraform's name for one lock
	terraformNote = "terraform " // how the note of a state's lock begins; JSON follows
)

// terraformRoutes are the locks of Terraform's http backend. Which methods it uses
// is a setting of it.
var terraformRoutes = []route{
	{pattern: "LOCK /v1/terraform/{path...}", body: true, handle: (*call).lockState},
	{pattern: "POST /v1/terraform/{path...}", body: true, handle: (*call).lockState},
	{pattern: "PUT /v1/terraform/{path...}", body: true, handle: (*call).lockState},
	{pattern: "UNLOCK /v1/terraform/{path...}", body: true, handle: (*call).unlockState},
	{pattern: "DELETE /v1/terraform/{path...}", body: true, handle: (*call).unlockState},
}

// lockState is Terraform's LOCK: 200 if it has the lock, 423 with the lock in the
// way if not.
func (c *call) lockState() error {
	var m mistakes
	path := c.path(&m)
	query := c.query(&m, "ttl")
	ttl, err := terraformTTL, error(nil)
	if query.Has("ttl") {
		ttl, err = spanOf("ttl", query.Get("ttl"))
		m.add(err)
	}
	body, err := c.read()
	if err != nil {
		return err
	}
	info := readLockInfo(body, &m)
	if err := m.err(); err != nil {
		return err
	}
	taken, err := states{c.engine()}.lock(c.r.Context(), path, info, ttl)
	if err != nil {
		return withAddress(err)
	}
	if taken != nil {
		return c.write(http.StatusLocked, inTheWay(taken[0], time.Now()))
	}
	return c.write(http.StatusOK, info)
}

// unlockState is Terraform's UNLOCK: 200 if the lock is gone, 409 if another one is
// there. Without a body it is Terraform's force-unlock. A ttl is what was copied from
// the address for LOCK, and is not looked at.
func (c *call) unlockState() error {
	var m mistakes
	path := c.path(&m)
	c.query(&m, "ttl")
	body, err := c.read()
	m.add(err)
	if err := m.err(); err != nil {
		return err
	}
	s := states{c.engine()}
	if len(body) == 0 {
		found, err := s.force(c.r.Context(), path, lockkeeper.Label{As: c.pass.Name(), Note: "terraform force-unlock"})
		if err == nil && !found {
			err = c.pass.May(access.Look, path) // or it would seem unlocked to who can't see it
		}
		if err != nil {
			return err
		}
		return c.write(http.StatusOK, struct{}{})
	}
	var info lockInfo
	if err := json.Unmarshal(body, &info); err != nil {
		return lockkeeper.Invalid("the body is not what Terraform sends with UNLOCK: a JSON object with an ID, and texts alone")
	}
	id, _, _ := strings.Cut(info.ID, " ") // as inTheWay writes it
	if err := checkLockID(id); err != nil {
		return err
	}
	taken, err := s.unlock(c.r.Context(), path, id)
	if err != nil {
		return err
	}
	if taken != nil {
		return c.write(http.StatusConflict, inTheWay(taken[0], time.Now()))
	}
	return c.write(http.StatusOK, struct{}{})
}

// lockInfo is what Terraform says of a lock. Its stamps are for people to read.
type lockInfo struct {
	ID        string `json:"ID"`
	Operation string `json:"Operation,omitempty"`
	Info      string `json:"Info,omitempty"`
	Who       string `json:"Who,omitempty"`
	Version   string `json:"Version,omitempty"`
	Created   string `json:"Created,omitempty"`
	Path      string `json:"Path,omitempty"`
}

// readLockInfo reads what Terraform sends with LOCK, and refuses what could not be
// told to others later.
func readLockInfo(body []byte, m *mistakes) lockInfo {
	var info lockInfo
	if err := json.Unmarshal(body, &info); err != nil {
		m.addf("the body is not what Terraform sends with LOCK: a JSON object with an ID, and texts alone")
		return info
	}
	m.add(checkLockID(info.ID))
	if !isTime(info.Created) {
		m.addf("Created %s: Terraform writes a time as 2006-01-02T15:04:05Z, and could not read another one", quoted(info.Created))
	}
	label := info.label()
	if len(label.Note) > lockkeeper.MaxNoteBytes {
		m.addf("Terraform's lock has %d bytes beside Who: at most %d are kept, so shorten Info, or Path", len(label.Note), lockkeeper.MaxNoteBytes)
		label.Note = ""
	}
	m.add((&lockkeeper.Session{ID: "x", TTL: terraformTTL, Label: label}).Check(false))
	return info
}

// isTime reports whether Terraform can read the time of a lock.
func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339, text)
	return err == nil || text == ""
}

func checkLockID(id string) error {
	if id == "" || len(id) > maxLockID || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0xfffd }) {
		return lockkeeper.Invalid("ID %.40q: Terraform names each lock by 1 to %d bytes without spaces", id, maxLockID)
	}
	return nil
}

// label carries a lock's info, so that any server of the engine can tell it.
func (i lockInfo) label() lockkeeper.Label {
	who := i.Who
	i.Who = ""
	text, _ := json.Marshal(i) // strings alone
	return lockkeeper.Label{As: who, Note: terraformNote + string(text)}
}

// infoOf is the reverse of lockInfo.label; false if the label is of something else.
func infoOf(l lockkeeper.Label) (lockInfo, bool) {
	var info lockInfo
	text, ok := strings.CutPrefix(l.Note, terraformNote)
	if !ok || json.Unmarshal([]byte(text), &info) != nil || checkLockID(info.ID) != nil || !isTime(info.Created) {
		return lockInfo{}, false
	}
	info.Who = l.As
	return info, true
}

// inTheWay tells Terraform of whoever has the state. All that it shows of this to
// people is the ID, so that tells the rest as well; the name of the lock, or of a
// claim that is none of Terraform's, is its first word.
func inTheWay(b lockkeeper.Blocker, now time.Time) lockInfo {
	info, ok := infoOf(b.Label)
	if ok {
		b.Note = info.Operation
	} else {
		info = lockInfo{ID: b.Ref.String(), Who: b.As, Info: b.Note, Created: now.Add(-b.Age).UTC().Format(time.RFC3339)}
		if info.ID == "" {
			info.ID = "freeze"
		}
	}
	b.Age = b.Age.Round(time.Second)
	info.ID, info.Path = info.ID+" "+blockerText(b), string(b.Path)
	return info
}
