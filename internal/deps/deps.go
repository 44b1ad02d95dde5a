// Package deps is temporary.
package deps

import (
	_ "github.com/aws/aws-sdk-go-v2/aws"
	_ "github.com/aws/aws-sdk-go-v2/config"
	_ "github.com/aws/aws-sdk-go-v2/credentials"
	_ "github.com/aws/aws-sdk-go-v2/service/s3"
	_ "github.com/aws/smithy-go"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/cpu"
)
