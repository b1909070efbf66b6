package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// terraformTTL is the TTL of a state lock if the address gives none. Terraform does not renew, so
// it must be longer than any apply; force-unlock ends the lock of a process that was killed.
const terraformTTL = 24 * time.Hour

const (
	maxLockID     = 128         // bytes of a lock's ID
	terraformNote = "terraform" // the note of a state lock begins so
	beforeID      = ", ID "     // precedes the ID in that note
)

// terraformRoutes are the locks of Terraform's http backend, which can be configured to use any of
// these methods.
var terraformRoutes = []route{
	{pattern: "LOCK /v1/terraform/{path...}", body: true, handle: (*call).lockState},
	{pattern: "POST /v1/terraform/{path...}", body: true, handle: (*call).lockState},
	{pattern: "PUT /v1/terraform/{path...}", body: true, handle: (*call).lockState},
	{pattern: "UNLOCK /v1/terraform/{path...}", body: true, handle: (*call).unlockState},
	{pattern: "DELETE /v1/terraform/{path...}", body: true, handle: (*call).unlockState},
}

// lockState is Terraform's LOCK: 200, or 423 with the blocking lock.
func (c *call) lockState() error {
	var m mistakes
	path := c.path(&m)
	query := c.query(&m, "ttl")
	ttl, err := terraformTTL, error(nil)
	if query.Has("ttl") {
		ttl, err = parseDuration("ttl", query.Get("ttl"))
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
	blockers, err := stateLocks{c.engine()}.lock(c.r.Context(), path, info, ttl)
	if err != nil {
		return withAddressHint(err)
	}
	if blockers != nil {
		return c.write(http.StatusLocked, blockingLock(blockers[0], time.Now()))
	}
	return c.write(http.StatusOK, info)
}

// unlockState is Terraform's UNLOCK: 200 if the lock has ended, 409 if the state has another lock.
// Without a body it is Terraform's force-unlock. It accepts and ignores a ttl, because the address
// for LOCK may have one.
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
			err = c.pass.May(access.Look, path) // otherwise a caller without that right would believe it unlocked
		}
		if err != nil {
			return err
		}
		return c.write(http.StatusOK, struct{}{})
	}
	var info lockInfo
	if err := json.Unmarshal(body, &info); err != nil {
		return lockkeeper.Invalid("the body is not Terraform's lock info: send a JSON object of texts, with an ID")
	}
	id, _, _ := strings.Cut(info.ID, " ") // blockingLock appends text to the ID
	if err := checkLockID(id); err != nil {
		return err
	}
	blockers, err := s.unlock(c.r.Context(), path, id)
	if err != nil {
		return err
	}
	if blockers != nil {
		return c.write(http.StatusConflict, blockingLock(blockers[0], time.Now()))
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

// readLockInfo decodes the body of LOCK. It refuses text that a label cannot have.
func readLockInfo(body []byte, m *mistakes) lockInfo {
	var info lockInfo
	if err := json.Unmarshal(body, &info); err != nil {
		m.addf("the body is not Terraform's lock info: send a JSON object of texts, with an ID")
		return info
	}
	m.add(checkLockID(info.ID))
	m.add((&lockkeeper.Session{ID: "x", TTL: terraformTTL, Label: info.label()}).Check(false))
	return info
}

func checkLockID(id string) error {
	if id == "" || len(id) > maxLockID ||
		strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0xfffd }) {
		return lockkeeper.Invalid("ID %.40q is not valid: Terraform's IDs have 1 to %d bytes without spaces", id, maxLockID)
	}
	return nil
}

// label returns the label of a lock, with a note such as "terraform apply, ID 5f0c". Any server of
// the engine finds the ID in the note.
func (i lockInfo) label() lockkeeper.Label {
	operation := i.Operation
	if kind, ok := strings.CutPrefix(operation, "OperationType"); ok {
		operation = strings.ToLower(kind)
	}
	return lockkeeper.Label{As: i.Who, Note: strings.TrimSpace(terraformNote+" "+operation) + beforeID + i.ID}
}

// infoOf is the inverse of lockInfo.label; false if the label is not of a state lock.
func infoOf(l lockkeeper.Label) (lockInfo, bool) {
	operation, ours := strings.CutPrefix(l.Note, terraformNote)
	i := strings.LastIndex(operation, beforeID)
	if !ours || i < 0 || checkLockID(operation[i+len(beforeID):]) != nil {
		return lockInfo{}, false
	}
	return lockInfo{ID: operation[i+len(beforeID):], Operation: strings.TrimSpace(operation[:i]), Who: l.As}, true
}

// blockingLock returns the lock info of a blocker. Terraform shows only the ID to people, so the ID
// contains the description of the blocker after its first word, which is the ID of the lock, or of
// a claim that Terraform did not make.
func blockingLock(b lockkeeper.Blocker, now time.Time) lockInfo {
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
