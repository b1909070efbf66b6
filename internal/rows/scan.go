package rows

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Signed reads a uint64 that the database stores as a signed integer.
type Signed struct{ To *uint64 }

// Scan implements sql.Scanner.
func (s Signed) Scan(v any) error {
	n, err := number(v)
	*s.To = uint64(n)
	return err
}

// Endless reads an instant or a duration; NULL is [lockkeeper.Forever].
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

// number converts the value that a driver returns for a number: some drivers return text.
func number(v any) (int64, error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case []byte:
		return strconv.ParseInt(string(v), 10, 64)
	}
	return 0, fmt.Errorf("%T where a number should be", v)
}

// End returns the value of a column that [Endless] reads.
func End(d time.Duration) any {
	if d == lockkeeper.Forever {
		return nil
	}
	return int64(d)
}
