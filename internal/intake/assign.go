package intake

import (
	"crypto/sha256"
	"encoding/binary"
)

// Assignment is an arm of an experiment.
type Assignment string

// The two arms.
const (
	Holdout   Assignment = "holdout"
	Treatment Assignment = "treatment"
)

// holdoutPerMille is the share of units that are held out.
const holdoutPerMille = 100

// Assign is a pure function of the unit: the same experiment, tenant and identity fall into the same arm before and
// after an erasure, on every instance, and nothing about the person needs to be kept for it.
func Assign(experiment, tenant, identity string) Assignment {
	h := sha256.New()
	for _, part := range []string{experiment, tenant, identity} {
		var size [4]byte
		binary.BigEndian.PutUint32(size[:], uint32(len(part))) //nolint:gosec // a field is at most 1 KiB
		h.Write(size[:])
		h.Write([]byte(part))
	}
	if binary.BigEndian.Uint64(h.Sum(nil))%1000 < holdoutPerMille {
		return Holdout
	}
	return Treatment
}
