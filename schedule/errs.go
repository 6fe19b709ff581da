package schedule

import "errors"

var ErrBadEntry = errors.New("bad entry")
