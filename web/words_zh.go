package web

// chinese is the catalogue in simplified Chinese.
var chinese = map[string]string{
	// The frame.
	"Skip to the content":                   "跳到正文",
	"Pages":                                 "页面",
	"Queues":                                "队列",
	"As of":                                 "数据时间",
	"Times are UTC; with script, your own.": "时间为 UTC；启用脚本后为您的本地时间。",
	"This page has not been fed since %s. What it shows is old.": "自 %s 起本页未再更新，显示的是旧数据。",
	"Back to the queues":      "返回队列列表",
	"Something is in the way": "出了点问题",

	// What is wrong.
	"This page has been closed":            "本页面已关闭",
	"There is no such page":                "没有这个页面",
	"There is no such queue":               "没有这个队列",
	"There is no such message":             "没有这条消息",
	"That is not how this page is asked":   "不能这样请求本页面",
	"This page is read-only":               "本页面为只读",
	"This form was sent from another site": "此表单来自其他网站",
	"This form cannot be read":             "无法读取此表单",
	"Redis does not answer":                "Redis 没有响应",
	"Too many pages are open":              "打开的页面太多",

	// Lengths of time.
	"%s ms":  "%s 毫秒",
	"%s s":   "%s 秒",
	"%s min": "%s 分钟",
	"%s h":   "%s 小时",
	"%s d":   "%s 天",
	"in %s":  "%s后",
	"%s ago": "%s前",
	"now":    "现在",

	// Verdicts.
	"cannot be read: %s":           "无法读取：%s",
	"paused":                       "已暂停",
	"paused until %s":              "暂停至 %s",
	"no consumers":                 "没有消费者",
	"no consumers, %s behind":      "没有消费者，已落后 %s",
	"empty, no consumers":          "空队列，没有消费者",
	"waits for its limit since %s": "自 %s 起受限流等待",
	"%s of deliveries fail":        "%s 的投递失败",
	"all workers are busy":         "所有工作协程都在忙",
	"fine":                         "正常",
	"%s behind":                    "落后 %s",
	"%s behind, and it grows":      "落后 %s，且仍在增加",
	"%s behind, drains in %s":      "落后 %s，预计 %s后清空",

	// The board.
	"There is no queue yet":                    "还没有队列",
	"Queues in trouble: %s":                    "有问题的队列：%s",
	"Queues to look at: %s":                    "需要留意的队列：%s",
	"Queues may be missing":                    "可能缺少部分队列",
	"All is well":                              "一切正常",
	"The list of queues may be incomplete: %s": "队列列表可能不完整：%s",
	"There are more queues than are shown. Config.Queues names those that matter.": "队列过多，未全部显示。可用 Config.Queues 指定要显示的队列。",
	"All queues, the worst first": "所有队列，最差的在前",
	"Queue":                       "队列",
	"Waiting":                     "等待中",
	"In a second":                 "每秒流入",
	"Out a second":                "每秒流出",
	"Failing":                     "失败率",
	"Busy":                        "忙碌",
	"New garbage":                 "新增死信",
	"Next due":                    "下次到期",
	"no numbers":                  "没有数据",
	"A queue is here as soon as something is sent to it, or a consumer has started.": "向队列发送消息或启动消费者后，队列就会出现在这里。",
	"What waits, in the last %s: from %s to %s":                                      "最近 %s内等待的消息：从 %s 到 %s",
}
