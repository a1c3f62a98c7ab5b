package ledger

import "os"

// OpenFaulty opens a ledger whose syncs and writes fail when they are told to.
func OpenFaulty(dir string, keys *Keys) (*File, *Faults, error) {
	faults := &Faults{}
	f, err := openFile(dir, keys, nil, func(path string) (disk, error) {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		return &faulty{File: file, faults: faults}, err
	})
	return f, faults, err
}

// Faults are what fails.
type Faults struct {
	Sync  error
	Write error
	Short int // bytes that a failing write leaves
}

type faulty struct {
	*os.File
	faults *Faults
}

func (f *faulty) Sync() error {
	if f.faults.Sync != nil {
		return f.faults.Sync
	}
	return f.File.Sync()
}

func (f *faulty) WriteAt(p []byte, off int64) (int, error) {
	if f.faults.Write != nil {
		n, _ := f.File.WriteAt(p[:min(f.faults.Short, len(p))], off)
		return n, f.faults.Write
	}
	return f.File.WriteAt(p, off)
}
