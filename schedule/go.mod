module github.com/go-delayqueue/delayqueue/schedule

go 1.25.0

replace github.com/go-delayqueue/delayqueue => ../

require github.com/robfig/cron/v3 v3.0.1
