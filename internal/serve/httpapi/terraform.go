package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// terraformTTL is how long a state is locked for if nobody unlocks it and the address
// says nothing else. Terraform sends no heartbeat, so it must be longer than any
// apply; who was killed is got rid of by force-unlock.
const terraformTTL = 24 * time.Hour

const (
	maxLockID     = 128         // bytes of Terraform's name for one lock
	terraformNote = "terraform" // how the note of a state's lock begins
	beforeID      = ", ID "     // in that note
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
	taken, err := stateLocks{c.engine()}.lock(c.r.Context(), path, info, ttl)
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
	s := stateLocks{c.engine()}
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
		return lockkeeper.Invalid("the body is not what Terraform sends with UNLOCK: " +
			"a JSON object with an ID, and texts alone")
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

// lockInfo is Terraform's description of a lock.
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
	m.add((&lockkeeper.Session{ID: "x", TTL: terraformTTL, Label: info.label()}).Check(false))
	return info
}

func checkLockID(id string) error {
	if id == "" || len(id) > maxLockID ||
		strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0xfffd }) {
		return lockkeeper.Invalid("ID %.40q: Terraform names each lock by 1 to %d bytes without spaces", id, maxLockID)
	}
	return nil
}

// label returns the label of a lock for people: the name, and a note such as
// "terraform apply, ID 5f0c". Any server of the engine finds the ID in the note.
func (i lockInfo) label() lockkeeper.Label {
	operation := i.Operation
	if kind, ok := strings.CutPrefix(operation, "OperationType"); ok {
		operation = strings.ToLower(kind)
	}
	return lockkeeper.Label{As: i.Who, Note: strings.TrimSpace(terraformNote+" "+operation) + beforeID + i.ID}
}

// infoOf is the reverse of lockInfo.label; false if the label is of something else.
func infoOf(l lockkeeper.Label) (lockInfo, bool) {
	operation, ours := strings.CutPrefix(l.Note, terraformNote)
	i := strings.LastIndex(operation, beforeID)
	if !ours || i < 0 || checkLockID(operation[i+len(beforeID):]) != nil {
		return lockInfo{}, false
	}
	return lockInfo{ID: operation[i+len(beforeID):], Operation: strings.TrimSpace(operation[:i]), Who: l.As}, true
}

// inTheWay tells Terraform of whoever has the state. All that it shows of this to
// people is the ID, so that tells the rest as well; the name of the lock, or of a
// claim that is none of Terraform's, is its first word.
func inTheWay(b lockkeeper.Blocker, now time.Time) lockInfo {
	info, ok := infoOf(b.Label)
	if !ok {
		info = lockInfo{ID: b.Ref.String(), Who: b.As, Info: b.Note}
		if info.ID == "" {
			info.ID = "freeze"
		}
	}
	info.Created = now.Add(-b.Age).UTC().Format(time.RFC3339)
	b.Age = b.Age.Round(time.Second)
	info.ID, info.Path = info.ID+" "+blockerText(b), string(b.Path)
	return info
}
