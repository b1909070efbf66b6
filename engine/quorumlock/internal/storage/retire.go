package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

// Retire closes the folder as Close does, and makes its node one that Open refuses, for good: another
// node goes on with what it had, which the record names. No other process gets the folder in between.
// After an error it is unknown whether the node is retired: [Retired] finds out.
//
//	retired ── record, synced ──> node.db renamed to node.db.retired ──> folder synced
func (s *Store) Retire(record []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.close(func() error {
		if err := s.folder.retire(record); err != nil {
			return refusal(s.folder.database(), err)
		}
		return nil
	})
}

func (f folder) retired() string { return f.database() + ".retired" }
func (f folder) record() string  { return filepath.Join(f.path, "retired") }

func (f folder) retire(record []byte) error {
	file, err := os.OpenFile(f.record(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(record)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := dbfolder.SyncFolder(f.path); err != nil {
		return err
	}
	if err := os.Rename(f.database(), f.retired()); err != nil {
		return err
	}
	return dbfolder.SyncFolder(f.path)
}

// Retired returns the record of a folder whose node is retired; nil if it is not.
func Retired(dir string) ([]byte, error) {
	f := folder{path: dir}
	if is, err := f.isRetired(); !is || err != nil {
		return nil, err
	}
	return os.ReadFile(f.record())
}

func (f folder) isRetired() (bool, error) {
	there, err := dbfolder.HasContent(f.database())
	if err != nil || there {
		return false, err
	}
	_, err = os.Lstat(f.retired())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
