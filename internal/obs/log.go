// Package obs is what operators see: log entries with the field names of Cloud Logging, and Prometheus metrics. Neither
// ever holds an identity, a source reference or row content.
package obs

import (
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger writes JSON lines of that level and above. Errors: a level that zap doesn't know.
func NewLogger(level string, to io.Writer) (*zap.Logger, error) {
	at, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("LOG_LEVEL: %q is none of debug, info, warn, error", level)
	}
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		MessageKey: "message", LevelKey: "severity", TimeKey: "time", NameKey: "logger", StacktraceKey: "stack_trace",
		LineEnding: zapcore.DefaultLineEnding, EncodeLevel: severity, EncodeTime: zapcore.RFC3339NanoTimeEncoder,
		EncodeDuration: func(d time.Duration, e zapcore.PrimitiveArrayEncoder) { e.AppendString(d.String()) },
	})
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(to)), at)), nil
}

// severity is Cloud Logging's word for a level.
func severity(l zapcore.Level, e zapcore.PrimitiveArrayEncoder) {
	switch {
	case l >= zapcore.DPanicLevel:
		e.AppendString("CRITICAL")
	case l == zapcore.ErrorLevel:
		e.AppendString("ERROR")
	case l == zapcore.WarnLevel:
		e.AppendString("WARNING")
	case l == zapcore.InfoLevel:
		e.AppendString("INFO")
	default:
		e.AppendString("DEBUG")
	}
}
