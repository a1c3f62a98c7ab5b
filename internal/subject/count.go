package subject

import "strconv"

// Count is a number of rows that was measured, or the fact that it was not. The zero value is "not measured",
// which is null on the wire, never 0.
type Count struct {
	n        int64
	measured bool
}

// Measured is a number that a store answered. It may be negative, which no honest store answers and no receipt
// accepts.
func Measured(n int64) Count { return Count{n: n, measured: true} }

// Unmeasured is the absence of a measurement.
func Unmeasured() Count { return Count{} }

// Value is the number, and whether it was measured at all.
func (c Count) Value() (n int64, measured bool) { return c.n, c.measured }

// IsZero reports a measurement of exactly 0. What was not measured is not zero.
func (c Count) IsZero() bool { return c.measured && c.n == 0 }

// String is the number, or null.
func (c Count) String() string {
	if !c.measured {
		return "null"
	}
	return strconv.FormatInt(c.n, 10)
}

// MarshalJSON writes an integer, or null.
func (c Count) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }
