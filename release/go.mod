module github.com/go-delayqueue/delayqueue/release

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/yuin/goldmark v1.8.6
	golang.org/x/mod v0.39.0
)

require github.com/yuin/gopher-lua v1.1.1 // indirect
