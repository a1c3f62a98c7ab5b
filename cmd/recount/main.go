// Command recount erases, reads and checks a person's data across the cells of a deployment. It talks HTTP only.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"recount/internal/cli"
)

// version is set at build time with -ldflags "-X main.version=…".
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], version)
	stop()
	os.Exit(code)
}
