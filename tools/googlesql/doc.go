// Package googlesql checks with the real GoogleSQL analyser what the emulator can't: every statement that the product can
// emit, and every DDL file. It is a module of its own because the analyser takes minutes and gigabytes to build; never
// run it with -race. `go test -count=1 ./...` in this
// folder is the check: what it reads lies outside the module, where Go's test cache does not look for changes.
package googlesql
