package voters

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

var three = Policy{Voters: 3, Grace: time.Minute}

// fifteen is the table of the description of snaplock: six front ends should vote, one back end
// instead if need be, two rather not, and the six database nodes only if nothing else is left. Two
// front ends drew the same random number, so their addresses decide.
func fifteen() []Member {
	var members []Member
	add := func(name string, rank Rank, random uint32, address string) {
		members = append(members, Member{ID: uint64(len(members) + 1), CaughtUp: true, Node: Node{
			Name: name, Rank: rank, Random: random, Address: netip.MustParseAddrPort(address),
		}})
	}
	add("front1", 1, 0x0b5c1f3a, "10.0.0.1:7000")
	add("front2", 1, 0x03a9d2e0, "10.0.0.2:7000")
	add("front3", 1, 0x0e44017c, "10.0.0.3:7000")
	add("front4", 1, 0x03a9d2e0, "10.0.0.10:7000")
	add("front5", 1, 0x0719b6d5, "10.0.0.5:7000")
	add("front6", 1, 0x0c00ffee, "[fd00::6]:7000")
	add("back1", 8, 0x00000001, "10.0.1.1:7000")
	add("back2", 8, 0x00000002, "10.0.1.2:7000")
	add("back3", 2, 0x0fffffff, "10.0.1.3:7000")
	for i := range 6 {
		add(fmt.Sprintf("database%d", i+1), RatherNot, uint32(i), fmt.Sprintf("10.0.2.%d:7000", i+1))
	}
	return members
}

func names(members []Member) string {
	var list []string
	for _, m := range members {
		list = append(list, m.Name)
	}
	return strings.Join(list, " ")
}

// named returns the member with that name, to be changed.
func named(t *testing.T, members []Member, name string) *Member {
	t.Helper()
	i := slices.IndexFunc(members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("there is no member %s", name)
	}
	return &members[i]
}

func TestFifteenNodesChooseTheirVoters(t *testing.T) {
	for _, c := range []struct {
		voters int
		gone   string // nodes that do not answer
		want   string
	}{
		{1, "", "front2"},
		{3, "", "front2 front4 front5"},
		{5, "", "front2 front4 front5 front1 front6"},
		{3, "front2 front4 front5", "front1 front6 front3"},
		{3, "front1 front2 front3 front4 front5", "front6 back3 back1"},
		{3, "front1 front2 front3 front4 front5 front6", "back3 back1 back2"},
		{3, "front1 front2 front3 front4 front5 front6 back3 back1", "back2 database1 database2"},
	} {
		members := fifteen()
		for name := range strings.FieldsSeq(c.gone) {
			named(t, members, name).Silent = time.Second
		}
		got := names(Choose(Policy{Voters: c.voters, Grace: time.Minute}, members, 0))
		if got != c.want {
			t.Errorf("%d voters without %q: got %q, want %q", c.voters, c.gone, got, c.want)
		}
	}
}

func TestFewNodesChooseTheLargestOddNumber(t *testing.T) {
	for n, want := range []int{0, 1, 1, 3, 3, 5, 5, 5} {
		if got := len(Choose(Policy{Voters: 5, Grace: time.Minute}, fifteen()[:n], 0)); got != want {
			t.Errorf("%d of at most 5 voters among %d nodes, want %d", got, n, want)
		}
	}
	members := fifteen()[:3]
	members[1].Rank = Off
	if got := names(Choose(three, members, 0)); got != "front1" {
		t.Errorf("with one of three nodes off, %q vote, want front1", got)
	}
}

func TestOffNodesNeverVote(t *testing.T) {
	members := fifteen()
	for i := range members {
		members[i].Rank = Off
	}
	if got := Choose(three, members, 0); len(got) != 0 {
		t.Errorf("%q vote though all are off", names(got))
	}
	members[14].Rank = RatherNot
	if got := names(Choose(three, members, 0)); got != "database6" {
		t.Errorf("%q vote, want the only node that is not off", got)
	}
}

func TestTiesAreBrokenByAddressPortAndName(t *testing.T) {
	node := func(name, address string) Member {
		return Member{Node: Node{Name: name, Address: netip.MustParseAddrPort(address)}, ID: 7}
	}
	members := []Member{
		node("e", "[2001:db8::1]:1"), node("d", "10.0.0.2:2"), node("c", "10.0.0.2:1"), node("b", "9.0.0.255:9"),
		node("a", "10.0.0.2:2"),
	}
	for i := range members {
		members[i].ID = uint64(i + 1)
	}
	if got := names(Choose(Policy{Voters: 5, Grace: 1}, members, 0)); got != "b c a d e" {
		t.Errorf("order %q, want b c a d e", got)
	}
}

func TestRanksAreReadAsTheyAreWritten(t *testing.T) {
	for r := Leads; r <= Off; r++ {
		if got, err := ParseRank(r.String()); err != nil || got != r {
			t.Errorf("rank %s was read as %s, %v", r, got, err)
		}
	}
	for _, text := range []string{"", "16", "-1", "01", "OFF", "0x1", "1 ", "256"} {
		if r, err := ParseRank(text); err == nil {
			t.Errorf("rank %q was read as %s, want an error", text, r)
		}
	}
}

func TestPolicyRefusesEvenNumbers(t *testing.T) {
	for voters := range 8 {
		err := Policy{Voters: voters, Grace: time.Minute}.Check()
		if valid := voters == 1 || voters == 3 || voters == 5; valid != (err == nil) {
			t.Errorf("%d voters: %v", voters, err)
		}
	}
	if (Policy{Voters: 3}).Check() == nil {
		t.Error("a policy without a grace is valid")
	}
}

// cluster returns n members of rank 5, of which the first voters vote. Member i has the id i+1.
func cluster(n, voters int) []Member {
	var members []Member
	for i := range n {
		m := Member{ID: uint64(i + 1), CaughtUp: i < voters, Node: Node{
			Name: fmt.Sprint(i + 1), Rank: 5, Random: uint32(i),
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 7000),
		}}
		if i < voters {
			m.Role = Voter
		}
		members = append(members, m)
	}
	return members
}

func TestLeaderYieldsOnlyToACaughtUpVoterOfRankZero(t *testing.T) {
	yields := func(change func(m []Member)) string {
		members := cluster(4, 3)
		change(members)
		to, ok := Yield(members, 1)
		if !ok {
			return ""
		}
		return to.Name
	}
	for about, c := range map[string]struct {
		change func(m []Member)
		want   string
	}{
		"nobody has rank 0":            {func(m []Member) {}, ""},
		"a better rank is not enough":  {func(m []Member) { m[1].Rank = 1 }, ""},
		"a caught-up voter has rank 0": {func(m []Member) { m[2].Rank = Leads }, "3"},
		"two have rank 0":              {func(m []Member) { m[1].Rank, m[2].Rank = Leads, Leads }, "2"},
		"it has not caught up":         {func(m []Member) { m[2].Rank, m[2].CaughtUp = Leads, false }, ""},
		"it is silent":                 {func(m []Member) { m[2].Rank, m[2].Silent = Leads, 1 }, ""},
		"it is retired":                {func(m []Member) { m[2].Rank, m[2].Retired = Leads, true }, ""},
		"it is a learner": {func(m []Member) {
			m[3].Rank, m[3].Role, m[3].CaughtUp = Leads, Learner, true
		}, ""},
		"the leader has rank 0 itself": {func(m []Member) { m[0].Rank, m[1].Rank = Leads, Leads }, ""},
		"the leader is turned off":     {func(m []Member) { m[0].Rank, m[2].Rank = Off, 4 }, "3"},
		"the leader is turned off, and nobody else has caught up": {func(m []Member) {
			m[0].Rank, m[1].CaughtUp, m[2].Rank = Off, false, Off
		}, ""},
	} {
		if got := yields(c.change); got != c.want {
			t.Errorf("%s: it yields to %q, want %q", about, got, c.want)
		}
	}
	if _, ok := Yield(cluster(3, 3), 9); ok {
		t.Error("a leader that is no member yields")
	}
}

// carryOut applies changes until there is none, and returns them. Learners catch up at once.
func carryOut(t *testing.T, p Policy, members []Member, leader uint64) string {
	t.Helper()
	var done []string
	for range 20 {
		c, ok := Next(p, members, leader)
		if !ok {
			return strings.Join(done, ", ")
		}
		apply(members, c)
		done = append(done, fmt.Sprint(c.Kind, " ", c.ID))
	}
	t.Fatalf("the changes have no end: %s", done)
	return ""
}

func apply(members []Member, c Change) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.ID == c.ID })
	switch c.Kind {
	case Add:
		members[i].Role, members[i].CaughtUp = Learner, true
	case Demote:
		members[i].Role = Learner
	case Promote:
		members[i].Role = Voter
	case Remove:
		members[i].Role = Outside
	}
}

func TestChangesOfVoters(t *testing.T) {
	for about, c := range map[string]struct {
		n, voters int
		change    func(m []Member)
		want      string
	}{
		"all is well":                     {5, 3, func(m []Member) {}, "add 4, add 5"},
		"a better rank replaces no voter": {5, 3, func(m []Member) { m[4].Rank = Leads }, "add 5, add 4"},
		"a cluster grows":                 {4, 1, func(m []Member) {}, "add 2, add 3, add 4, promote 2, promote 3"},
		"one of two nodes votes":          {2, 1, func(m []Member) {}, "add 2"},
		"a lost voter is replaced": {5, 3, func(m []Member) { m[1].Silent = 2 * time.Minute },
			"add 4, add 5, promote 4, demote 2"},
		"a silent voter has its grace": {5, 3, func(m []Member) { m[1].Silent = time.Minute }, "add 4, add 5"},
		"nobody replaces a lost voter": {3, 3, func(m []Member) { m[1].Silent = 2 * time.Minute }, ""},
		"the replacement is silent": {4, 3, func(m []Member) {
			m[1].Silent, m[3].Silent = 2*time.Minute, time.Second
		}, ""},
		"the replacement is off": {4, 3, func(m []Member) { m[1].Silent, m[3].Rank = 2*time.Minute, Off }, "add 4"},
		"two of three are lost": {5, 3, func(m []Member) {
			m[1].Silent, m[2].Silent = 2*time.Minute, 2*time.Minute
		}, "add 4, add 5"}, // and no more: the leader has no majority to commit with
		"a voter is turned off": {5, 3, func(m []Member) { m[1].Rank = Off },
			"add 4, add 5, promote 4, demote 2"},
		"one of three nodes is off":         {3, 3, func(m []Member) { m[1].Rank = Off }, "demote 2, demote 3"},
		"the leader is off, and must yield": {4, 3, func(m []Member) { m[0].Rank = Off }, "add 4, promote 4"},
		"a node lost its disk": {4, 3, func(m []Member) {
			m[2].Retired = true
			m[3].Name = m[2].Name
		}, "remove 3, add 4, promote 4"},
		"a node lost its disk while another is silent": {4, 3, func(m []Member) {
			m[2].Retired, m[1].Silent = true, time.Second
		}, "add 4"},
		"a learner was lost": {5, 3, func(m []Member) {
			m[1].Silent, m[3].Role, m[3].Silent = 2*time.Minute, Learner, 2*time.Minute
		}, "add 5, promote 5, demote 2"},
		"a lost voter came back before its replacement voted": {5, 3, func(m []Member) {
			m[3].Role, m[3].CaughtUp = Learner, true
		}, "add 5"},
	} {
		members := cluster(c.n, c.voters)
		c.change(members)
		if got := carryOut(t, three, members, 1); got != c.want {
			t.Errorf("%s: %q, want %q", about, got, c.want)
		}
	}
}

func TestLearnerVotesOnlyWhenItHasCaughtUp(t *testing.T) {
	members := cluster(3, 1)
	members[1].Role = Learner
	if c, _ := Next(three, members, 1); c.Kind == Promote {
		t.Errorf("%s %d: it has not caught up", c.Kind, c.ID)
	}
}

func TestVotersGrowTo5AndShrinkTo1(t *testing.T) {
	members := cluster(6, 3)
	five, one := Policy{Voters: 5, Grace: time.Minute}, Policy{Voters: 1, Grace: time.Minute}
	if got := carryOut(t, five, members, 3); got != "add 4, add 5, add 6, promote 4, promote 5" {
		t.Error(got)
	}
	if got := carryOut(t, one, members, 3); got != "demote 5, demote 4, demote 2, demote 1" {
		t.Errorf("%s: want all but the leader demoted", got)
	}
}

// Whatever the members are, a change keeps a healthy majority, removes neither the leader nor a
// healthy voter without need, and the changes come to an end.
func TestRandomClustersSettle(t *testing.T) {
	random := testmode.Rand(t)
	for range testmode.Pick(2000, 200_000) {
		members := randomCluster(random)
		p := Policy{Voters: []int{1, 3, 5}[random.IntN(3)], Grace: time.Minute}
		leader := uint64(random.IntN(len(members)) + 1)
		members[leader-1].Role, members[leader-1].Silent = Voter, 0
		members[leader-1].CaughtUp, members[leader-1].Retired = true, false
		before := fmt.Sprint(members)
		for range 30 {
			c, ok := Next(p, members, leader)
			if !ok {
				break
			}
			m := &members[c.ID-1]
			if !keepsMajority(members, c) || !fits(c.Kind, m, leader) {
				t.Fatalf("leader %d of %v, then %v: %s %d", leader, before, members, c.Kind, c.ID)
			}
			apply(members, c)
		}
		if c, ok := Next(p, members, leader); ok {
			t.Fatalf("leader %d of %v: no end, still %s %d", leader, before, c.Kind, c.ID)
		}
	}
}

// fits reports whether a change of that kind suits a member.
func fits(kind ChangeKind, m *Member, leader uint64) bool {
	switch kind {
	case Add:
		return m.Silent == 0 && !m.Retired
	case Promote:
		return m.Silent == 0 && !m.Retired && m.Rank < Off
	case Demote:
		return m.ID != leader && !m.Retired
	}
	return m.ID != leader && m.Retired
}

func randomCluster(random *rand.Rand) []Member {
	members := cluster(1+random.IntN(8), 0)
	for i := range members {
		m := &members[i]
		m.Rank, m.Random = Rank(random.IntN(int(Off)+1)), uint32(random.IntN(3))
		m.Role, m.CaughtUp = Role(random.IntN(3)), random.IntN(3) > 0
		m.Silent = []time.Duration{0, 0, time.Second, time.Hour}[random.IntN(4)]
		m.Retired = random.IntN(8) == 0
	}
	return members
}
