package rows

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Signed reads a number of 64 bits that a database knows as signed.
type Signed struct{ To *uint64 }

// Scan implements sql.Scanner.
func (s Signed) Scan(v any) error {
	n, err := number(v)
	*s.To = uint64(n)
	return err
}

// Endless reads an instant or a duration of which NULL is without end.
type Endless struct{ To *time.Duration }

// Scan implements sql.Scanner.
func (e Endless) Scan(v any) error {
	if v == nil {
		*e.To = lockkeeper.Forever
		return nil
	}
	n, err := number(v)
	*e.To = time.Duration(n)
	return err
}

// number is a number as drivers give it, some of them as text.
func number(v any) (int64, error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case []byte:
		return strconv.ParseInt(string(v), 10, 64)
	}
	return 0, fmt.Errorf("%T where a number should be", v)
}

// End is the reverse of [Endless].
func End(d time.Duration) any {
	if d == lockkeeper.Forever {
		return nil
	}
	return int64(d)
}
