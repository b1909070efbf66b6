package storage

import (
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

var (
	// ErrLost is the cause of an error of Open if something durable is missing or changed.
	ErrLost = errors.New("this node must not start under its id: move its folder away, and join the cluster " +
		"again, which gives it a new id")

	// ErrNoNode is the cause of an error of Open if the folder has no node.
	ErrNoNode = errors.New("create a cluster or join one first")

	// ErrFull is the cause of an error of Write and Create if the disk is full. Nothing of the call is
	// durable, and the caller may repeat it.
	ErrFull = errors.New("the disk is full, and nothing of the write is durable: make room")

	// ErrFailed is the cause of all errors of a Store after an error of Write other than ErrFull. The
	// last write may be durable as a whole, or not at all.
	ErrFailed = errors.New("the disk of this node is not used any more: restart the process, and look for a failing disk")

	// ErrClosed is the error of a Store after Close.
	ErrClosed = errors.New("the storage of this node is closed")
)

// lostf returns the refusal of a folder that lacks something, or has something of another node.
func lostf(format string, args ...any) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrInvalid, Detail: fmt.Sprintf(format, args...), Cause: ErrLost}
}

// refusal returns the error of Open and Create when err prevents the use of the database.
func refusal(path string, err error) error {
	typed := new(lockkeeper.Error)
	switch {
	case errors.As(err, &typed), errors.Is(err, ErrFull):
		return err
	case dbfolder.IsFull(err):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case dbfolder.IsDamage(err):
		return lostf("%s: %v; nothing was changed", path, err)
	}
	return &lockkeeper.Error{
		Err:    lockkeeper.ErrUnavailable,
		Detail: dbfolder.Describe(path, err, ErrLost.Error()),
		Cause:  err,
	}
}
