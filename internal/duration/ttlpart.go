package duration

import (
	"math"
	"strconv"
	"strings"
)

// TTLPart reads a part of a TTL, such as "0.5ttl" or "1ttl", and returns it in thousandths, rounded.
// is is false if text is no such part. The caller checks the range.
func TTLPart(text string) (thousandths int, is bool) {
	number, is := strings.CutSuffix(text, "ttl")
	if !is || number == "" || !isDigit(number[0]) && number[0] != '.' {
		return 0, false
	}
	factor, err := strconv.ParseFloat(number, 64)
	if err != nil || factor > math.MaxInt32 {
		return 0, false
	}
	return int(math.Round(factor * 1000)), true
}

// TTLPartText writes what TTLPart reads.
func TTLPartText(thousandths int) string {
	return strconv.FormatFloat(float64(thousandths)/1000, 'f', -1, 64) + "ttl"
}
