package disklock

import (
	"errors"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

// unreadable returns the error for bytes that can't be decoded: another form, or damage.
func (r *recovered) unreadable(where string, err error) error {
	if form := new(record.FormError); errors.As(err, &form) {
		return lockkeeper.Invalid("%s, %s: %v: use %s, which wrote it, or a version that reads that form; nothing was "+
			"changed", r.path, where, form, r.writer)
	}
	return dbfolder.Damagef("%s: %v", where, err)
}

// otherRules returns the error for an entry of other rules: under the rules of this program the
// same commands may grant other locks.
func (r *recovered) otherRules(where string, rules uint64) error {
	return lockkeeper.Invalid("%s, %s: %s wrote it under version %d of the rules, and did not end cleanly; this is %s "+
		"with "+
		"version %d, which may decide otherwise: open the directory with %[3]s and end that cleanly (TERM), so that only a "+
		"snapshot is left, and then use this program; nothing was changed",
		r.path, where, r.writer, rules, dbfolder.Writer(), table.RulesVersion)
}

// laterRules returns the error for a snapshot of later rules, which this program may misinterpret.
func (r *recovered) laterRules(where string, rules uint64) error {
	return lockkeeper.Invalid("%s, %s: %s wrote it under version %d of the rules; this is %s, which knows versions up "+
		"to %d: "+
		"use %[3]s or a later version; nothing was changed",
		r.path, where, r.writer, rules, dbfolder.Writer(), table.RulesVersion)
}
