-- The requests that wrk sends: one POST of 1 KiB, with a key that is new, or one of so many known ones.
-- wrk -s load.lua URL -- KIND SEED KEYS WHO
--   KIND  new: a UUIDv4 each; known: any of KEYS, all as likely; each: KEYS one after the other, a half by each thread
--   WHO   bearer: with an Authorization; nobody: without; session: with a cookie beside it, always the same for a key

local threads = 0

function setup(thread)
    thread:set("number", threads)
    threads = threads + 1
end

local THREADS = 2
local SESSIONS = 10000
local start = '{"amount":1000,"currency":"eur","note":"'
local body = start .. string.rep("x", 1024 - #start - 2) .. '"}'
local random = math.random
local head, tail, next_key, cookie

function init(args)
    local kind, seed, count, who = args[1], tonumber(args[2]), tonumber(args[3]), args[4]
    -- Only the difference between the threads' seeds makes their keys differ.
    math.randomseed(seed * 64 + number)
    -- The host is part of what makes two requests the same, and a port would change with a restart.
    head = "POST /charge HTTP/1.1\r\nHost: shop.example" ..
        "\r\nContent-Type: application/json\r\nContent-Length: " .. #body
    if who ~= "nobody" then
        head = head .. "\r\nAuthorization: Bearer bench"
    end
    tail = "\r\n\r\n" .. body
    cookie = who == "session" and session or function() return "" end
    next_key = ({ new = uuid4, known = any_of(count), each = each_of(count) })[kind]
end

function uuid4()
    return string.format('"%08x-%04x-4%03x-%04x-%06x%06x"', random(0, 0xffffffff), random(0, 0xffff),
        random(0, 0xfff), random(0x8000, 0xbfff), random(0, 0xffffff), random(0, 0xffffff)), random(SESSIONS)
end

-- Spread like random ones, and the same in every run.
function known(i)
    return string.format('"%08x-0000-4000-8000-%012x"', i * 2654435761 % 4294967296, i)
end

function any_of(count)
    return function()
        local i = random(count)
        return known(i), i % SESSIONS + 1
    end
end

function each_of(count)
    local share = math.ceil(count / THREADS)
    local first, at = number * share, 0
    return function()
        at = at % share + 1
        return known(first + at), (first + at) % SESSIONS + 1
    end
end

function session(number)
    -- 16 bytes as base64url, which is what the store takes for a session.
    return string.format("\r\nCookie: session=%021dA", number)
end

function request()
    local key, number = next_key()
    return head .. "\r\nIdempotency-Key: " .. key .. cookie(number) .. tail
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        '\nRESULT {"requests":%d,"seconds":%f,"refused":%d,"socket_errors":%d,"p50_ms":%f,"p99_ms":%f}\n',
        summary.requests, summary.duration / 1e6, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout,
        latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
