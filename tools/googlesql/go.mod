module recount/tools/googlesql

go 1.26.0

require github.com/goccy/go-googlesql v0.4.0

require github.com/goccy/googlesqlwasm2go v0.2.0 // indirect
