package s3_test

import (
	"testing"

	"github.com/tonbo-go/tonbo/internal/s3test"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/remotetest"
)

func TestConformance(t *testing.T) {
	place := s3test.At(t)
	remotetest.Run(t, func(t *testing.T) remote.Store { return place.Open(t) })
}
