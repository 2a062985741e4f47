module example/hqueue

go 1.20

require (
	github.com/apache/thrift v0.13.0
	github.com/cloudwego/thriftgo v0.3.15
)
