package firestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"recount/internal/subject"
)

const (
	attempts   = 4                     // of one operation that fails in passing
	firstPause = 50 * time.Millisecond // doubled each time, with jitter
)

// passingError is a failure that may be gone the next time. It hides its gRPC status from the SDK, whose own retries end
// with the context only: the retries are attempt's.
type passingError struct {
	code  codes.Code
	cause error // never unwrapped and never printed
}

func (e *passingError) Error() string { return "firestore: " + e.code.String() }

// mark turns the statuses that the SDK would retry into *passingError. Elsewhere than in a batch Aborted stays: the SDK's
// transactions need it, and give up after a few.
func mark(ctx context.Context, method string, err error) error {
	if err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil {
		return err
	}
	code := status.Code(err)
	switch code {
	case codes.Unavailable, codes.ResourceExhausted, codes.Internal, codes.DeadlineExceeded:
		return &passingError{code: code, cause: err}
	case codes.Aborted:
		if strings.HasSuffix(method, "/BatchWrite") {
			return &passingError{code: code, cause: err}
		}
	}
	return err
}

func markUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return mark(ctx, method, next(ctx, method, req, reply, cc, opts...))
}

func markStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := next(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, mark(ctx, method, err)
	}
	return markedStream{stream, method}, nil
}

type markedStream struct {
	grpc.ClientStream

	method string
}

func (s markedStream) SendMsg(m any) error {
	return mark(s.Context(), s.method, s.ClientStream.SendMsg(m))
}

func (s markedStream) RecvMsg(m any) error {
	return mark(s.Context(), s.method, s.ClientStream.RecvMsg(m))
}

// attempt runs an operation that may be repeated, until it fails in passing no more or too often.
func attempt(ctx context.Context, operation func() error) error {
	for n := 1; ; n++ {
		err := operation()
		if err == nil || n == attempts || !isPassing(err) || !pause(ctx, n) {
			return err
		}
	}
}

// pause waits before the attempt after the n-th; false when the context ended.
func pause(ctx context.Context, n int) bool {
	base := firstPause << (n - 1)
	return sleep(ctx, base/2+rand.N(base)) //nolint:gosec // jitter, no secret
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func codeOf(err error) codes.Code {
	var passing *passingError
	if errors.As(err, &passing) {
		return passing.code
	}
	return status.Code(err)
}

// reasonOf is the one classifier: what a gRPC status means, and whether it may be gone the next time.
func reasonOf(err error) (reason subject.Reason, passing bool) {
	switch codeOf(err) {
	case codes.ResourceExhausted:
		return subject.ReasonQuota, true
	case codes.Aborted:
		return subject.ReasonConcurrentUpdate, true
	case codes.Unavailable, codes.Internal, codes.DeadlineExceeded:
		return subject.ReasonBackendBusy, true
	case codes.NotFound:
		return subject.ReasonNotFound, false
	case codes.PermissionDenied, codes.Unauthenticated:
		return subject.ReasonAccessDenied, false
	case codes.FailedPrecondition, codes.Unimplemented: // an index is exempted, or this is no Native-mode database
		return subject.ReasonUnsupported, false
	default:
		return subject.ReasonNone, false
	}
}

func isPassing(err error) bool {
	_, passing := reasonOf(err)
	return passing
}

// isRefused reports that a request was too much at once ("Transaction too big"), or holds a write that is invalid: half
// of it tells which.
func isRefused(err error) bool {
	return codeOf(err) == codes.InvalidArgument ||
		codeOf(err) == codes.ResourceExhausted && strings.Contains(causeText(err), "larger than max")
}

func causeText(err error) string {
	var passing *passingError
	if errors.As(err, &passing) && passing.cause != nil {
		return passing.cause.Error()
	}
	return err.Error()
}

// failed is what a caller sees of an error: a *subject.Fault, whose text is a word of the vocabulary. The end of the
// context, and what is a verdict already, stay what they are.
func failed(ctx context.Context, err error, otherwise subject.Reason) error {
	if err == nil || isVerdict(err) {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("firestore: %w", ctx.Err())
	}
	reason, _ := reasonOf(err)
	if reason == subject.ReasonNone {
		reason = otherwise
	}
	return &subject.Fault{Reason: reason, Cause: err}
}

// undeleted is failed for a delete, where a failure in passing is *subject.NotYet: the recount decides.
func undeleted(ctx context.Context, err error) error {
	if reason, passing := reasonOf(err); passing && !isVerdict(err) && ctx.Err() == nil {
		return &subject.NotYet{Reason: reason, Cause: err}
	}
	return failed(ctx, err, subject.ReasonDeleteFailed)
}

// forGood is failed for what a recount would not notice.
func forGood(ctx context.Context, err error) error {
	var notYet *subject.NotYet
	if errors.As(err, &notYet) {
		return &subject.Fault{Reason: notYet.Reason, Cause: err}
	}
	return failed(ctx, err, subject.ReasonDeleteFailed)
}

func isVerdict(err error) bool {
	var fault *subject.Fault
	var notYet *subject.NotYet
	return errors.As(err, &fault) || errors.As(err, &notYet)
}

// worse is the error that a receipt must show of two: what will not pass by itself.
func worse(a, b error) error {
	var notYet *subject.NotYet
	if a == nil || b != nil && errors.As(a, &notYet) {
		return b
	}
	return a
}
