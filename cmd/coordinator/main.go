// Command coordinator runs the scoring cell, which also carries an erasure to every peer. The README lists its
// environment.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"recount/internal/app"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "coordinator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	config, err := app.LoadCoordinator()
	if err != nil {
		return err
	}
	return app.RunCoordinator(ctx, config, os.Stderr)
}
