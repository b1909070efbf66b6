//go:build nextrules

package replica

import "github.com/lockkeeper/lockkeeper/table"

// A program that is built with the tag nextrules has one more version of the rules than package table,
// for tests of upgrades: under it a renewal takes a nanosecond. A node that steps one under the wrong
// version has another table, and stops when the hashes are compared. No release is built with it.
func init() {
	step := tableRules.Step
	tableRules.Latest++
	tableRules.Step = func(version uint64, t *table.Table, c *table.Command) (table.Reply, error) {
		if version == tableRules.Latest && c.Op == table.Renew {
			slow := *c
			slow.At++
			c = &slow
		}
		return step(version, t, c)
	}
}
