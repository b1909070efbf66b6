package join

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
)

// The steps of the exchange.
const (
	stepJoin  = "join"
	stepBegin = "begin"
)

// A request is what a new node asks for.
type request struct {
	Form   int    `json:"form"` // of this protocol
	Step   string `json:"step"`
	Secret []byte `json:"secret"` // of the token
	Node   Node   `json:"node"`   // of step join only the name; of step begin all but Key and Random

	// key is the digest of the key that the new node has shown to have. It is not part of the message.
	key Digest
}

// A Code says which kind of refusal it is.
type Code string

// The refusals. None of them passes by itself.
const (
	Invalid      Code = "invalid"       // the request itself is wrong
	TokenUnknown Code = "token unknown" // the secret is wrong, or the token was removed
	TokenUsed    Code = "token used"    // by another node
	TokenEnded   Code = "token ended"   // its time is over
	NameTaken    Code = "name taken"    // by another node, which was not removed
	KeyTaken     Code = "key taken"     // by another node: the folder is a copy of its folder
	Expelled     Code = "expelled"      // the node was removed, or its disk counts as lost
	Joined       Code = "joined"        // the node is a member already, so its log can't be empty
)

// A Refusal is the final answer to a request that was not granted.
type Refusal struct {
	Code   Code
	Detail string // what is wrong and what would be right, for people
}

func (r *Refusal) Error() string { return r.Detail }

func refuse(code Code, format string, args ...any) error {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}

// decide returns what happens next to a request, in a state of the settings: a change to make, after
// which the caller reads the settings and decides again, or without a change the id that the new
// node gets. An error is a *Refusal, or says that a setting can't be read. decide is all that there
// is of the protocol on the cluster's side: it keeps nothing, so its caller may stop at any point, and
// any node may go on. draw returns a random id.
func decide(v View, r *request, draw func() uint64) (change *Setting, id uint64, err error) {
	if r.Step == stepBegin {
		return decideBegin(v, r)
	}
	return decideJoin(v, r, draw)
}

// decideJoin claims the token for the key, the name and a new id.
//
//	token: none, ended ──> refused        claimed by this key and name ──> id, until the node is a member
//	       unused      ──> claimed        claimed otherwise            ──> refused
func decideJoin(v View, r *request, draw func() uint64) (*Setting, uint64, error) {
	token, setting, err := findToken(v, r)
	if err != nil {
		return nil, 0, err
	}
	node, _, err := nodeNamed(v, r.Node.Name)
	if err != nil {
		return nil, 0, err
	}
	if c := token.Claim; c != nil {
		switch {
		case expelled(v, c.ID):
			return nil, 0, refuseExpelled(c.ID)
		case node.ID == c.ID:
			return nil, 0, refuse(Joined, "node %q has joined already, and its log is gone: an empty log under the same id "+
				"could break the promises of the old one. Mark its disk as lost, and join with a new token", node.Name)
		}
	}
	if err := refuseName(v, r, &token, &node); err != nil {
		return nil, 0, err
	}
	if token.Claim != nil {
		return nil, token.Claim.ID, nil
	}
	token.Claim = &Claim{Key: r.key, Name: r.Node.Name, ID: draw()}
	change, err := setting.with(token)
	return &change, 0, err
}

// decideBegin makes the node a member under its name.
//
//	node: this id      ──> begun          another id that is not expelled ──> refused
//	      none         ──> this id        another id that is expelled     ──> this id
func decideBegin(v View, r *request) (*Setting, uint64, error) {
	if expelled(v, r.Node.ID) {
		return nil, 0, refuseExpelled(r.Node.ID)
	}
	node, setting, err := nodeNamed(v, r.Node.Name)
	if err != nil {
		return nil, 0, err
	}
	if node.ID == r.Node.ID && node.Key == r.key {
		return nil, node.ID, nil // also if the token has ended since
	}
	token, _, err := findToken(v, r)
	if err != nil {
		return nil, 0, err
	}
	if token.Claim == nil || token.Claim.ID != r.Node.ID {
		return nil, 0, refuse(TokenUsed, "the join token is not the one by which this node got its id: make a new token, "+
			"and join from an empty folder")
	}
	if err := refuseName(v, r, &token, &node); err != nil {
		return nil, 0, err
	}
	node = r.Node
	node.Key, node.Random = r.key, randomOf(r.key)
	change, err := setting.with(node)
	return &change, 0, err
}

// findToken returns the token of the request, if the request may use it now.
func findToken(v View, r *request) (token TokenRecord, setting Setting, err error) {
	digest := Digest(sha256.Sum256(r.Secret))
	setting = v.Setting(tokenPrefix + digest.String()[:tokenIDDigits])
	if len(setting.Value) > 0 {
		err = readJSON(setting, &token)
	}
	c := token.Claim
	switch {
	case err != nil:
	case len(setting.Value) == 0 || subtle.ConstantTimeCompare(token.Digest[:], digest[:]) != 1:
		err = refuse(TokenUnknown, "the cluster has no such join token: it was withdrawn, or it ended: make a new one")
	case c != nil && c.Key != r.key:
		err = refuse(TokenUsed, "the join token was used by another node, for the name %q: make a new one for each node",
			c.Name)
	case c != nil && c.Name != r.Node.Name:
		err = refuse(TokenUsed, "this node has used the join token for the name %q: join under that name, or make a new "+
			"token", c.Name)
	case v.Now() >= token.Ends:
		err = refuse(TokenEnded, "the time of the join token is over: make a new one")
	}
	return token, setting, err
}

// refuseName returns a refusal if another node has the name or the key of the new one.
func refuseName(v View, r *request, token *TokenRecord, node *Node) error {
	id := uint64(0)
	if token.Claim != nil {
		id = token.Claim.ID
	}
	if node.ID != 0 && node.ID != id && !expelled(v, node.ID) {
		return refuse(NameTaken, "the cluster has a node %q already, at %s: choose another name; or if that node is "+
			"gone for good, or its disk is lost, remove it by lk cluster remove", node.Name, node.Address)
	}
	nodes, err := Nodes(v)
	if err != nil {
		return err
	}
	for i := range nodes {
		if nodes[i].Key == r.key && nodes[i].ID != id {
			return refuse(KeyTaken, "node %q has the key of this node: if this folder is a copy of its folder, join from an "+
				"empty one; if it is that node itself, remove the node first", nodes[i].Name)
		}
	}
	return nil
}

func refuseExpelled(id uint64) error {
	return refuse(Expelled, "node %s was removed from the cluster, or its disk counts as lost: join with a new token, "+
		"from "+
		"an empty folder", FormatID(id))
}
