/*
 * What hqueue calls of HBase's second Thrift gateway ("Thrift2", THBaseService), as of HBase 2.6.
 * Names and field numbers are the wire format and HBase's own; fields that hqueue neither sends
 * nor reads are left out, which Thrift allows.
 */
namespace py hqueue.hbase2

struct TTimeRange {
  1: required i64 minStamp,
  2: required i64 maxStamp
}

struct TColumn {
  1: required binary family,
  2: optional binary qualifier,
  3: optional i64 timestamp
}

struct TColumnValue {
  1: required binary family,
  2: required binary qualifier,
  3: required binary value,
  4: optional i64 timestamp
}

struct TResult {
  1: optional binary row,
  2: required list<TColumnValue> columnValues
}

/* ---- rows ---- */

struct TGet {
  1: required binary row,
  2: optional list<TColumn> columns
}

struct TPut {
  1: required binary row,
  2: required list<TColumnValue> columnValues
}

enum TDeleteType {
  DELETE_COLUMN = 0,    // the newest version of each column named
  DELETE_COLUMNS = 1    // all versions of each column named
}

struct TDelete {
  1: required binary row,
  2: optional list<TColumn> columns,
  4: optional TDeleteType deleteType = TDeleteType.DELETE_COLUMNS
}

struct TScan {
  1: optional binary startRow,
  2: optional binary stopRow,
  3: optional list<TColumn> columns,
  4: optional i32 caching,
  11: optional bool reversed,
  15: optional i32 limit
}

/* ---- tables ---- */

struct TTableName {
  1: optional binary ns,
  2: required binary qualifier
}

enum TCompressionAlgorithm {
  LZO = 0,
  GZ = 1,
  NONE = 2,
  SNAPPY = 3,
  LZ4 = 4,
  BZIP2 = 5,
  ZSTD = 6
}

enum TDataBlockEncoding {
  NONE = 0,
  FAST_DIFF = 4    // what a cell has in common with the one before it is left out
}

struct TColumnFamilyDescriptor {
  1: required binary name,
  2: optional map<binary, binary> attributes,
  3: optional map<string, string> configuration,
  4: optional i32 blockSize,
  6: optional TCompressionAlgorithm compressionType,
  8: optional TDataBlockEncoding dataBlockEncoding,
  10: optional i32 maxVersions,
  13: optional i32 timeToLive
}

struct TTableDescriptor {
  1: required TTableName tableName,
  2: optional list<TColumnFamilyDescriptor> columns,
  3: optional map<binary, binary> attributes
}

struct TServerName {
  1: required string hostName,
  2: optional i32 port,
  3: optional i64 startCode
}

struct TRegionInfo {
  1: required i64 regionId,
  2: required binary tableName,
  3: optional binary startKey,
  4: optional binary endKey
}

struct TRegionLocation {
  1: required TServerName serverName,
  2: required TRegionInfo regionInfo
}

exception TIOError {
  1: optional string message,
  2: optional bool canRetry
}

service THBaseService {
  TResult get(1: required binary table, 2: required TGet tget) throws (1: TIOError io)

  /* Results in the order of the gets; those of rows that aren't there have no values. */
  list<TResult> getMultiple(
    1: required binary table,
    2: required list<TGet> tgets
  ) throws (1: TIOError io)

  void put(1: required binary table, 2: required TPut tput) throws (1: TIOError io)

  /* Applies the put if the cell holds `value`; without a value, if the cell is absent. */
  bool checkAndPut(
    1: required binary table,
    2: required binary row,
    3: required binary family,
    4: required binary qualifier,
    5: binary value,
    6: required TPut tput
  ) throws (1: TIOError io)

  /* Applies the delete if the cell holds `value`; without a value, if the cell is absent. */
  bool checkAndDelete(
    1: required binary table,
    2: required binary row,
    3: required binary family,
    4: required binary qualifier,
    5: binary value,
    6: required TDelete tdelete
  ) throws (1: TIOError io)

  void deleteSingle(1: required binary table, 2: required TDelete tdelete) throws (1: TIOError io)

  list<TDelete> deleteMultiple(
    1: required binary table,
    2: required list<TDelete> tdeletes
  ) throws (1: TIOError io)

  /* Opens a scan, reads at most `numRows` rows and closes it. */
  list<TResult> getScannerResults(
    1: required binary table,
    2: required TScan tscan,
    3: i32 numRows = 1
  ) throws (1: TIOError io)

  list<TRegionLocation> getAllRegionLocations(1: required binary table) throws (1: TIOError io)

  TTableDescriptor getTableDescriptor(1: required TTableName table) throws (1: TIOError io)

  list<TTableDescriptor> getTableDescriptorsByPattern(
    1: optional string regex,
    2: required bool includeSysTables
  ) throws (1: TIOError io)

  bool tableExists(1: TTableName tableName) throws (1: TIOError io)

  void createTable(
    1: required TTableDescriptor desc,
    2: optional list<binary> splitKeys
  ) throws (1: TIOError io)

  void deleteTable(1: required TTableName tableName) throws (1: TIOError io)

  void truncateTable(
    1: required TTableName tableName,
    2: required bool preserveSplits
  ) throws (1: TIOError io)

  void enableTable(1: required TTableName tableName) throws (1: TIOError io)

  void disableTable(1: required TTableName tableName) throws (1: TIOError io)

  bool isTableEnabled(1: required TTableName tableName) throws (1: TIOError io)

  void modifyTable(1: required TTableDescriptor desc) throws (1: TIOError io)

  /* Names the HBase cluster: a UUID that it made when it was first started. */
  string getClusterId()
}
